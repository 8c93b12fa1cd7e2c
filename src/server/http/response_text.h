#pragma once

#include <string>
#include <string_view>

#include "server/api/reply.h"

namespace carat::server {

// How an answer is put on the wire. Pure.
struct ResponseStyle {
  bool is_head = false;      // the request was HEAD: no body
  bool is_http_1_0 = false;  // no chunks: the end of the connection ends a stream
  bool closes = false;
  std::string request_id = {};
};

// Status line, headers and body.
std::string whole_response(const Response& response, const ResponseStyle& style);
// Status line and headers of a stream.
// The body of `head` does not count.
std::string stream_head(const Response& head, const ResponseStyle& style);
// Nothing for no bytes: an empty chunk would end the stream.
void append_chunk(std::string_view bytes, const ResponseStyle& style, std::string& out);
void append_last_chunk(const ResponseStyle& style, std::string& out);

std::string_view reason_phrase(unsigned status);

}  // namespace carat::server
