#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http_server.h"

namespace carat::serve_bench::test {

// A server that says what a test wants. Each request has a thread, so that scripts may wait.
class FakeServer {
 public:
  using Script = std::function<void(server::Exchange&)>;

  explicit FakeServer(Script script);
  ~FakeServer();

  std::string url() const;
  std::vector<std::string> bodies() const;  // of all requests so far, in order
  uint64_t connections() const;             // that were made so far
  void close_after_answers();

 private:
  const Script script_;
  mutable std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::vector<std::thread> threads_;
  std::unique_ptr<server::HttpServer> server_;
};

// Chunks of a chat and of a completion, and their ends.
std::string chat_chunk(const std::string& escaped_text);
std::string text_chunk(const std::string& escaped_text);
std::string last_chunk();
std::string usage_chunk(unsigned prompt, unsigned cached, unsigned output);
inline constexpr const char* kDone = "data: [DONE]\n\n";

// A whole answer of so many chunks.
void answer_with(server::Exchange& exchange, unsigned chunks, unsigned cached = 0);

}  // namespace carat::serve_bench::test
