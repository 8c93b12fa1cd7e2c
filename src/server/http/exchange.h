#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/reply.h"
#include "server/http/http_request.h"

namespace carat::server {

// One request and the answer to it: the seam between connections, which know bytes and time, and whoever answers.
// Everything but request() may be called from any thread. An answer is either one respond(), or begin_stream(), any
// number of write()s and finish() or abandon(). What comes after the client is gone is dropped.
class Exchange {
 public:
  // `wake` tells the connection that there is something to send; it must be callable from any thread.
  Exchange(HttpRequest request, size_t stream_bytes, std::function<void()> wake);

  const HttpRequest& request() const { return request_; }

  // A header of the answer, whatever it becomes; before it has begun.
  void add_header(std::string name, std::string value);
  void respond(Response response);
  void begin_stream(std::string_view content_type);
  bool has_begun() const;  // status and headers are decided
  // Returns whether the client keeps up: false while more is waiting to be sent than a stream may hold.
  bool write(std::string_view bytes);
  // As write, but the connection is woken only by flush(): all that one pass brought goes out at once.
  bool append(std::string_view bytes);
  void flush();
  void finish();
  // Ends a stream so that its client notices: the connection is closed without the end of the body.
  void abandon();

  // Called once, from the connection's thread, when the client is gone before the answer was complete; at once where it
  // is gone already.
  void on_gone(std::function<void()> callback);
  // Called from the connection's thread each time a client that had not kept up has read what was waiting.
  void on_drained(std::function<void()> callback);
  bool is_gone() const;

  // --- for the connection
  enum class Phase { kOpen, kWhole, kStreaming, kFinished, kAbandoned };
  struct Output {
    Phase phase = Phase::kOpen;
    Response head;      // of a whole answer, with its body; of a stream, its content type
    std::string bytes;  // of the stream, taken out
  };
  Output take_output();
  void client_gone();
  void sent();  // what take_output() gave is on its way

 private:
  const HttpRequest request_;
  const size_t stream_bytes_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kOpen;
  Response head_;
  std::vector<std::pair<std::string, std::string>> headers_;  // besides those of the response
  std::string pending_;
  size_t sending_ = 0;  // bytes the connection has taken and not sent
  bool is_behind_ = false;
  bool is_gone_ = false;
  std::function<void()> gone_, drained_;
};

}  // namespace carat::server
