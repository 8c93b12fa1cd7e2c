#include "server/http/response_text.h"

#include <fmt/format.h>

#include <iterator>

namespace carat::server {

namespace {
void append_headers(const Response& response, std::string& out) {
  for (const auto& [name, value] : response.headers) {
    fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  }
}

void append_common(const ResponseStyle& style, std::string& out) {
  if (!style.request_id.empty()) fmt::format_to(std::back_inserter(out), "x-request-id: {}\r\n", style.request_id);
  out += style.closes ? "Connection: close\r\n" : style.is_http_1_0 ? "Connection: keep-alive\r\n" : "";
}
}  // namespace

std::string_view reason_phrase(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 529:
      return "Overloaded";
    default:
      return "Unknown";
  }
}

std::string whole_response(const Response& response, const ResponseStyle& style) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  const bool has_body = response.status != 204 && response.status != 304;
  if (has_body) {
    fmt::format_to(std::back_inserter(out), "Content-Type: {}\r\nContent-Length: {}\r\n", response.content_type,
                   response.body.size());
  }
  append_headers(response, out);
  append_common(style, out);
  out += "\r\n";
  if (has_body && !style.is_head) out += response.body;
  return out;
}

std::string stream_head(const Response& head, const ResponseStyle& style) {
  std::string out = fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n", head.content_type);
  append_headers(head, out);
  ResponseStyle own = style;
  own.closes = style.closes || style.is_http_1_0;
  append_common(own, out);
  out += style.is_http_1_0 ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n";
  return out;
}

void append_chunk(std::string_view bytes, const ResponseStyle& style, std::string& out) {
  if (bytes.empty() || style.is_head) return;
  if (!style.is_http_1_0) fmt::format_to(std::back_inserter(out), "{:x}\r\n", bytes.size());
  out += bytes;
  if (!style.is_http_1_0) out += "\r\n";
}

void append_last_chunk(const ResponseStyle& style, std::string& out) {
  if (!style.is_http_1_0 && !style.is_head) out += "0\r\n\r\n";
}

}  // namespace carat::server
