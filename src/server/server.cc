#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace carat::server {

Server::Server(ServerOptions options, Logger logger, bool log_as_json, bool log_requests)
    : options_(std::move(options)),
      log_(std::move(logger), log_as_json, log_requests),
      router_(options_.router, metrics_, log_) {
  http_ = std::make_unique<HttpServer>(
      options_.http, [this](std::shared_ptr<Exchange> exchange) { router_.handle(exchange); },
      [this](const Problem& problem, std::string_view path) { return router_.refusal(problem, path); });
  router_.set_figures([this] { return http_->figures(); });
}

// Nobody may ask for anything any more before what answers goes.
Server::~Server() {
  router_.set_figures({});
  http_->stop();
  router_.set_service(nullptr);
}

std::string Server::url() const {
  const bool is_v6 = options_.http.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? fmt::format("[{}]", options_.http.host) : options_.http.host;
  return fmt::format("{}://{}:{}", options_.http.tls_certificate.empty() ? "http" : "https", host, http_->port());
}

void Server::set_progress(uint64_t done, uint64_t total) {
  router_.set_progress(total == 0 ? 0.0 : static_cast<double>(done) / static_cast<double>(total));
}

void Server::open(engine::Engine engine, text::ChatTemplate chat_template, ServerFacts facts) {
  service_ = std::make_shared<Service>(std::move(engine), std::move(chat_template), std::move(facts), options_.service,
                                       metrics_, log_);
  router_.set_service(service_);
  metrics_.set_state(ServerState::kReady);
}

void Server::drain(double grace, double most) {
  using Clock = std::chrono::steady_clock;
  const auto wait = [](double seconds, const auto& is_done) {
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    while (Clock::now() < end && !is_done()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  metrics_.set_state(ServerState::kDraining);
  wait(grace, [] { return false; });
  http_->close_connections_after_answers();
  if (service_) {
    service_->refuse_new({.refusal = Refusal::kDraining, .message = "the server is shutting down", .retry_after = 1.0});
    service_->finish(most);
  }
  // What was written is on its way; connections close by themselves after their answers.
  wait(2.0, [&] { return http_->figures().connections == 0; });
}

}  // namespace carat::server
