#include "server/routes/page_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>

#include "server/page_files.h"

namespace carat::server {

namespace {

// No code but the page's own files, nothing from elsewhere, nothing sent elsewhere, and nobody's frame. Pictures and
// sound that a user attaches are data of the page itself.
constexpr std::string_view kPolicy =
    "default-src 'self'; img-src 'self' data:; media-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTypes = {{
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Calls `take` with each element of a list such as "gzip, br;q=0.5": its word and what follows the semicolon.
template <typename Take>
void for_each_element(std::string_view list, const Take& take) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view element = list.substr(0, comma);
    const size_t semicolon = std::min(element.find(';'), element.size());
    take(trimmed(element.substr(0, semicolon)), trimmed(element.substr(std::min(semicolon + 1, element.size()))));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
}

// "q=0" in any of its spellings means: not this one.
bool is_refused(std::string_view parameters) {
  return parameters.starts_with("q=") && std::atof(std::string(parameters.substr(2)).c_str()) <= 0.0;
}

bool takes_gzip(std::string_view accept_encoding) {
  bool takes = false;
  for_each_element(accept_encoding, [&](std::string_view word, std::string_view parameters) {
    if (word == "gzip") takes = !is_refused(parameters);
  });
  return takes;
}

bool has_tag(std::string_view if_none_match, std::string_view tag) {
  bool has = false;
  for_each_element(if_none_match, [&](std::string_view word, std::string_view) {
    if (word.starts_with("W/")) word.remove_prefix(2);
    has = has || word == "*" || word == tag;
  });
  return has;
}

}  // namespace

bool wants_page(const HttpRequest& request) {
  bool wants = false;
  for_each_element(request.header("accept"), [&](std::string_view word, std::string_view parameters) {
    if (word == "text/html") wants = !is_refused(parameters);
  });
  return wants;
}

Response page_response(std::string_view name, const HttpRequest& request) {
  const auto files = page_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const PageFile& known) { return known.name == name; });
  if (file == files.end()) return {.status = 0};
  const bool is_packed = takes_gzip(request.header("accept-encoding"));
  const std::string tag = fmt::format("\"{}{}\"", file->hash, is_packed ? "-gzip" : "");
  Response response;
  // Asked for anew each time, so that a newer server's page is never mixed with an older one's; 304 makes that cheap.
  response.headers = {{"ETag", tag}, {"Cache-Control", "no-cache"}, {"Vary", "Accept, Accept-Encoding"}};
  response.headers.emplace_back("Content-Security-Policy", kPolicy);
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  if (has_tag(request.header("if-none-match"), tag)) {
    response.status = 304;
    return response;
  }
  for (const auto& [ending, type] : kTypes) {
    if (name.ends_with(ending)) response.content_type = type;
  }
  if (is_packed) response.headers.emplace_back("Content-Encoding", "gzip");
  response.body = is_packed ? file->packed : file->content;
  return response;
}

}  // namespace carat::server
