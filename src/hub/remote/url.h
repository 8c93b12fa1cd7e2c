#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace carat::hub {

// An http or https address. Deliberately strict, so that this reading and that of the library which connects can never
// differ: printable ASCII only, no user names, no backslashes, plain host names.
struct Url {
  std::string scheme;  // "http" or "https"
  std::string host;    // lower case; IPv6 in brackets
  uint16_t port = 0;
  std::string target;  // path and query, begins with '/'

  std::string origin() const;  // "https://host[:port]", the port only when it is not the scheme's own
  std::string text() const { return origin() + target; }
  bool same_origin(const Url& other) const;
  // Whether the host is this machine: localhost, 127.x.y.z or [::1].
  bool is_loopback() const;
};

// nullopt for anything else. A fragment is dropped.
std::optional<Url> parse_url(std::string_view text);

// What a Location or Link of `base` means: an address, "//host/path", "/path" or a path beside the base's own.
std::optional<Url> resolve_url(const Url& base, std::string_view reference);

// Percent-encodes everything but letters, digits, "-._~" and the characters of `kept`.
std::string percent_encode(std::string_view text, std::string_view kept = "");

}  // namespace carat::hub
