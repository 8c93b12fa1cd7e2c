#include "hub/remote/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace carat::hub {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

uint16_t default_port(std::string_view scheme) { return scheme == "https" ? 443 : 80; }

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

bool is_host(std::string_view host) {
  if (host.starts_with('[')) {
    return host.size() > 2 && host.ends_with(']') && std::all_of(host.begin() + 1, host.end() - 1, [](char c) {
             return is_digit(c) || (c >= 'a' && c <= 'f') || c == ':' || c == '.';
           });
  }
  return !host.empty() && std::all_of(host.begin(), host.end(),
                                      [](char c) { return is_digit(c) || is_letter(c) || c == '.' || c == '-'; });
}

// Host and port; false when they are malformed.
bool parse_authority(std::string_view authority, Url& url) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  url.host = lower_case(authority.substr(0, colon));
  url.port = default_port(url.scheme);
  if (colon != std::string_view::npos) {
    const std::string_view digits = authority.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (error != std::errc() || end != digits.data() + digits.size() || url.port == 0) return false;
  }
  return is_host(url.host);
}

bool is_safe_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f && c != '\\'; });
}

}  // namespace

std::string Url::origin() const {
  if (port == default_port(scheme)) return fmt::format("{}://{}", scheme, host);
  return fmt::format("{}://{}:{}", scheme, host, port);
}

bool Url::same_origin(const Url& other) const {
  return scheme == other.scheme && host == other.host && port == other.port;
}

bool Url::is_loopback() const {
  if (host == "localhost" || host == "[::1]") return true;
  return host.starts_with("127.") && std::count(host.begin(), host.end(), '.') == 3 &&
         std::all_of(host.begin(), host.end(), [](char c) { return is_digit(c) || c == '.'; });
}

std::optional<Url> parse_url(std::string_view text) {
  if (!is_safe_text(text)) return std::nullopt;
  const size_t separator = text.find("://");
  if (separator == std::string_view::npos) return std::nullopt;
  Url url;
  url.scheme = lower_case(text.substr(0, separator));
  if (url.scheme != "http" && url.scheme != "https") return std::nullopt;
  std::string_view rest = text.substr(separator + 3);
  rest = rest.substr(0, rest.find('#'));
  const size_t path = std::min(rest.find_first_of("/?"), rest.size());
  if (!parse_authority(rest.substr(0, path), url)) return std::nullopt;
  url.target = rest.substr(path);
  if (!url.target.starts_with('/')) url.target.insert(0, 1, '/');
  return url;
}

std::optional<Url> resolve_url(const Url& base, std::string_view reference) {
  if (!is_safe_text(reference) || reference.empty()) return std::nullopt;
  const size_t first = reference.find_first_of(":/?#");
  const bool has_scheme = first != std::string_view::npos && reference[first] == ':';
  if (has_scheme) return parse_url(reference);
  if (reference.starts_with("//")) return parse_url(base.scheme + ":" + std::string(reference));
  if (reference.starts_with('/')) return parse_url(base.origin() + std::string(reference));
  const std::string path = base.target.substr(0, base.target.find('?'));
  return parse_url(base.origin() + path.substr(0, path.rfind('/') + 1) + std::string(reference));
}

std::string percent_encode(std::string_view text, std::string_view kept) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = is_digit(c) || is_letter(c) || std::string_view("-._~").find(c) != std::string_view::npos ||
                       kept.find(c) != std::string_view::npos;
    if (plain) {
      encoded.push_back(c);
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace carat::hub
