#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "engine/engine.h"
#include "server/api/facts.h"
#include "server/http/http_server.h"
#include "server/metrics/server_metrics.h"
#include "server/routes/router.h"
#include "server/server_log.h"
#include "server/service/service.h"
#include "text/chat/chat_template.h"

namespace carat::server {

struct ServerOptions {
  HttpOptions http;
  RouterOptions router;
  ServiceOptions service;
};

// A server from its first moment to its last: it listens before there is a model, serves once one is given, and drains.
// Not thread-safe.
class Server {
 public:
  // Listens. Throws kIo where host and port cannot be had.
  Server(ServerOptions options, Logger logger, bool log_as_json, bool log_requests);
  ~Server();

  std::string url() const;
  void set_progress(uint64_t done, uint64_t total);  // of the loading of the model
  void open(engine::Engine engine, text::ChatTemplate chat_template, ServerFacts facts);
  std::shared_ptr<const Service> service() const { return service_; }
  const ServerLog& log() const { return log_; }
  HttpFigures http_figures() const { return http_->figures(); }

  // Health says at once that the server goes away; for `grace` seconds requests are still taken, so that a balancer can
  // notice; then new ones are refused, and what runs has `most` seconds to end. Returns when nothing is left.
  void drain(double grace, double most);

 private:
  ServerOptions options_;
  ServerLog log_;
  ServerMetrics metrics_;
  Router router_;
  std::shared_ptr<Service> service_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace carat::server
