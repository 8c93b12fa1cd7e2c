#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace carat::test {

struct ServerRequest {
  std::string target;                          // path and query as sent
  std::map<std::string, std::string> headers;  // names in lower case
};

// What a test server answers, with everything a real one can do wrong.
struct ServerReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  bool send_length = true;                      // false: the end of the connection is the end of the body
  std::optional<uint64_t> claimed_length = {};  // Content-Length, when it is to be wrong
  std::optional<size_t> cut_after = {};         // closes the connection after so many bytes of the body
  size_t piece_bytes = size_t{1} << 20;         // written at a time,
  std::chrono::milliseconds between_pieces{0};  // with such a pause after each
};

// A web server on a free port of 127.0.0.1. Answers one request per connection, one after the other, in a thread of its
// own; the handler runs there.
class HttpServer {
 public:
  using Handler = std::function<ServerReply(const ServerRequest&)>;

  explicit HttpServer(Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const;  // "http://127.0.0.1:PORT"
  // Everything asked until now.
  std::vector<ServerRequest> requests() const;

 private:
  void serve();
  void answer(int connection);
  void send_reply(int connection, const ServerReply& reply) const;

  Handler handler_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::vector<ServerRequest> requests_;
  std::thread thread_;
};

}  // namespace carat::test
