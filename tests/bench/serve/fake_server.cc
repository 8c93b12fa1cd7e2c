#include "bench/serve/fake_server.h"

#include <fmt/format.h>

namespace carat::serve_bench::test {

FakeServer::FakeServer(Script script) : script_(std::move(script)) {
  const auto handle = [this](std::shared_ptr<server::Exchange> exchange) {
    const std::lock_guard lock(mutex_);
    bodies_.push_back(exchange->request().body);
    threads_.emplace_back([this, exchange] { script_(*exchange); });
  };
  const auto refuse = [](const server::Problem& problem, std::string_view) {
    return server::Response{.status = server::status_of(problem.refusal), .body = problem.message};
  };
  server::HttpOptions options;
  options.port = 0;
  server_ = std::make_unique<server::HttpServer>(options, handle, refuse);
}

FakeServer::~FakeServer() {
  server_->stop();
  for (std::thread& thread : threads_) thread.join();
}

std::string FakeServer::url() const { return fmt::format("http://127.0.0.1:{}", server_->port()); }

std::vector<std::string> FakeServer::bodies() const {
  const std::lock_guard lock(mutex_);
  return bodies_;
}

uint64_t FakeServer::connections() const { return server_->figures().accepted; }
void FakeServer::close_after_answers() { server_->close_connections_after_answers(); }

std::string chat_chunk(const std::string& escaped_text) {
  return fmt::format(
      "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}},\"finish_reason\":null}}]}}\n\n",
      escaped_text);
}
std::string text_chunk(const std::string& escaped_text) {
  return fmt::format("data: {{\"choices\":[{{\"index\":0,\"text\":\"{}\",\"finish_reason\":null}}]}}\n\n",
                     escaped_text);
}
std::string last_chunk() {
  return "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
}
std::string usage_chunk(unsigned prompt, unsigned cached, unsigned output) {
  return fmt::format(
      "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},"
      "\"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}}}\n\n",
      prompt, output, cached);
}

void answer_with(server::Exchange& exchange, unsigned chunks, unsigned cached) {
  exchange.begin_stream("text/event-stream");
  for (unsigned i = 0; i < chunks; ++i) exchange.write(chat_chunk("w"));
  exchange.write(last_chunk() + usage_chunk(100, cached, 2 * chunks) + kDone);
  exchange.finish();
}

}  // namespace carat::serve_bench::test
