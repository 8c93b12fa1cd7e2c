#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace carat::server {

// A request as it came, whole. Names of headers are in lower case.
struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // as sent
  std::string path;    // percent-decoded, without the query
  std::string query;   // without "?"
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string client;  // its address, without the port
  std::string id;      // x-request-id: the client's where it is usable, otherwise made here
  bool is_http_1_0 = false;

  // The first one of that name; empty where there is none.
  std::string_view header(std::string_view name) const;
  bool has_header(std::string_view name) const;
  // A parameter of the query, percent-decoded.
  std::optional<std::string> parameter(std::string_view name) const;
};

// Nothing where a percent sign is not followed by two hexadecimal digits, or a NUL would result.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space);

}  // namespace carat::server
