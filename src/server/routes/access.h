#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_error.h"
#include "server/http/http_request.h"

namespace carat::server {

struct AccessOptions {
  std::vector<std::string> keys = {};          // any of them opens every route; none: no key is asked for
  std::vector<std::string> cors_origins = {};  // besides the server's own and those of this machine; "*" is any
  bool is_loopback = true;                     // the server listens on this machine alone
  std::vector<std::string> hosts = {};         // names of the server besides localhost, for the check of Host
};

// Who may ask, and from where. A web page that a user happens to have open must not be able to use a server on the
// user's machine: requests with a foreign Origin are refused, and so are those with a foreign Host where nothing but
// the address protects the server (DNS rebinding). Immutable, thread-safe.
class Access {
 public:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  // Of every request: what its Host and Origin say. None: it may go on.
  std::optional<Problem> check_origin(const HttpRequest& request) const;
  // Of requests to routes that are not public: the key.
  std::optional<Problem> check_key(const HttpRequest& request) const;
  bool needs_key() const { return !options_.keys.empty(); }
  // The value of Access-Control-Allow-Origin; none for a request without an Origin.
  std::optional<std::string> allowed_origin(const HttpRequest& request) const;

 private:
  bool is_allowed_origin(std::string_view origin, std::string_view host) const;

  AccessOptions options_;
};

// Without looking at where they differ, so that the time taken tells nothing about a key but its length.
bool equal_in_constant_time(std::string_view left, std::string_view right);
// "[::1]:8080" -> "::1", "localhost:80" -> "localhost", in lower case.
std::string host_without_port(std::string_view host);

}  // namespace carat::server
