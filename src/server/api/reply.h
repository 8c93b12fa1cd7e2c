#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/event.h"

namespace carat::server {

// What makes one answer different from all others.
struct ReplyIdentity {
  std::string id;               // "chatcmpl-...", "msg_...": with the prefix of its route
  double created = 0.0;         // Unix time
  std::string request_id = {};  // as in the x-request-id header
};

// An answer without a stream: status and body, and headers beyond the common ones.
struct Response {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// How the answer to one request is written in its dialect: events in, bytes out. Knows no sockets. A streamed reply
// appends what is to be sent after each event; one that is not streamed collects until response(). Not thread-safe.
class Reply {
 public:
  virtual ~Reply() = default;

  virtual bool is_streamed() const = 0;
  // Of a stream: "text/event-stream" or "application/x-ndjson".
  virtual std::string_view stream_type() const { return "text/event-stream"; }
  // Of a stream: headers beyond the common ones.
  virtual std::vector<std::pair<std::string, std::string>> headers() const { return {}; }

  // Takes what happened. Appends to `out` what a stream sends for it; nothing otherwise.
  virtual void on(const Event& event, std::string& out) = 0;
  // Whether a stream tells of this failure itself even where nothing was sent before, with status 200, because its
  // clients look for it there. Otherwise response() does.
  virtual bool streams_failure(const Problem& /*problem*/) const { return false; }
  // What keeps an idle stream alive without meaning anything.
  virtual void keep_alive(std::string& out) { out += ": keep-alive\n\n"; }
  // Of a reply that is not streamed, after Ended or Failed; of a stream that failed before anything was sent.
  virtual Response response() = 0;
};

// One server-sent event: "data: JSON\n\n", with an "event:" line before it where it has a name.
void append_sse(std::string_view json, std::string& out, std::string_view event = {});

// When a client may try again (retry-after in whole seconds, retry-after-ms), and x-should-retry: false where that
// would change nothing: clients' libraries repeat every 5xx otherwise.
void add_retry_headers(const Problem& problem, Response& response);

// RFC 3339 in UTC.
std::string rfc3339(double unix_seconds, bool nanoseconds);

}  // namespace carat::server
