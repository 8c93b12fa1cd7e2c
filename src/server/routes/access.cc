#include "server/routes/access.h"

#include <algorithm>
#include <cctype>

namespace carat::server {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_this_machine(std::string_view host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1" || host.ends_with(".localhost");
}

// "http://localhost:3000" -> "localhost:3000"; empty for what is not http.
std::string_view host_of_origin(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  }
  return {};
}

// The key of "Authorization: Bearer KEY", whatever the case of the word.
std::string_view bearer(std::string_view authorization) {
  constexpr std::string_view kWord = "bearer";
  if (authorization.size() <= kWord.size() || lower(authorization.substr(0, kWord.size())) != kWord) return {};
  authorization.remove_prefix(kWord.size());
  if (authorization.front() != ' ') return {};
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' '), authorization.size()));
  return authorization;
}

}  // namespace

bool equal_in_constant_time(std::string_view left, std::string_view right) {
  if (left.size() != right.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    difference |= static_cast<unsigned char>(left[i]) ^ static_cast<unsigned char>(right[i]);
  }
  return difference == 0;
}

std::string host_without_port(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return lower(host.substr(1, end == std::string_view::npos ? std::string_view::npos : end - 1));
  }
  return lower(host.substr(0, host.find(':')));
}

bool Access::is_allowed_origin(std::string_view origin, std::string_view host) const {
  const std::string_view origin_host = host_of_origin(origin);
  if (!origin_host.empty()) {
    if (lower(origin_host) == lower(host) || is_this_machine(host_without_port(origin_host))) return true;
  }
  return std::any_of(options_.cors_origins.begin(), options_.cors_origins.end(),
                     [&](const std::string& allowed) { return allowed == "*" || lower(allowed) == lower(origin); });
}

std::optional<Problem> Access::check_origin(const HttpRequest& request) const {
  if (options_.is_loopback && !needs_key() && request.has_header("host")) {
    const std::string host = host_without_port(request.header("host"));
    const bool is_known =
        is_this_machine(host) || std::find(options_.hosts.begin(), options_.hosts.end(), host) != options_.hosts.end();
    if (!is_known) {
      return Problem{.refusal = Refusal::kForbidden,
                     .message =
                         "the Host of the request is not a name of this server; give the server an --api-key to "
                         "be reached by other names"};
    }
  }
  if (request.has_header("origin") && !is_allowed_origin(request.header("origin"), request.header("host"))) {
    return Problem{.refusal = Refusal::kForbidden,
                   .message = "pages of this origin may not use this server; --cors-origins allows more"};
  }
  return std::nullopt;
}

std::optional<Problem> Access::check_key(const HttpRequest& request) const {
  if (!needs_key()) return std::nullopt;
  const std::string_view given[] = {bearer(request.header("authorization")), request.header("x-api-key")};
  bool is_known = false;
  for (const std::string& key : options_.keys) {
    for (const std::string_view candidate : given) is_known |= equal_in_constant_time(candidate, key);
  }
  if (is_known) return std::nullopt;
  const bool is_missing = given[0].empty() && given[1].empty();
  return Problem{.refusal = Refusal::kUnauthorized,
                 .message = is_missing
                                ? "an API key is needed: send \"Authorization: Bearer KEY\" or \"x-api-key: KEY\""
                                : "the API key is not known to this server"};
}

std::optional<std::string> Access::allowed_origin(const HttpRequest& request) const {
  if (!request.has_header("origin")) return std::nullopt;
  return std::string(request.header("origin"));
}

}  // namespace carat::server
