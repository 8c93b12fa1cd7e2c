#include "serve/base_url.h"

#include "base/error.h"

namespace carat::serve_bench {

std::string BaseUrl::authority() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + port;
}

BaseUrl parse_base_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme)) {
    fail(ErrorCode::kBadArgument, "--base-url {}: expected http://HOST:PORT (TLS is not spoken here)", text);
  }
  std::string_view rest = text.substr(kScheme.size());
  BaseUrl url{.host = {}, .port = "80", .prefix = {}};
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.prefix = rest.substr(slash);
  while (url.prefix.ends_with('/')) url.prefix.pop_back();
  rest = rest.substr(0, slash);
  const size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  const size_t colon = bracket == std::string_view::npos ? bracket : rest.find(':', bracket);
  url.host = rest.substr(0, colon);
  if (colon != std::string_view::npos) url.port = rest.substr(colon + 1);
  if (url.host.starts_with('[') && url.host.ends_with(']')) url.host = url.host.substr(1, url.host.size() - 2);
  if (url.host.empty() || url.port.empty() || url.port.find_first_not_of("0123456789") != std::string::npos) {
    fail(ErrorCode::kBadArgument, "--base-url {}: expected http://HOST:PORT", text);
  }
  return url;
}

}  // namespace carat::serve_bench
