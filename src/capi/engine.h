#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "capi/request.h"
#include "carat/carat.h"
#include "server/metrics/server_metrics.h"
#include "server/routes/route_table.h"
#include "server/server_log.h"
#include "server/service/service.h"

namespace carat::capi {

// A model with everything that runs it: the server without its connections. Thread-safe.
class EmbeddedEngine {
 public:
  // As carat_open(). Throws carat::Error.
  EmbeddedEngine(const char* model, std::string_view options, const carat_hooks& hooks);

  ~EmbeddedEngine();  // whoever waits for an event is told that there are no more
  EmbeddedEngine(const EmbeddedEngine&) = delete;
  EmbeddedEngine& operator=(const EmbeddedEngine&) = delete;

  std::shared_ptr<RequestEvents> generate(std::string_view path, std::string body, carat_event_fn on_event, void* user);
  std::string model_info() const;
  std::string metrics() const;
  const server::PromptMaker& prompts() const { return service_->prompts(); }

 private:
  std::atomic<bool> cancelled_{false};
  server::ServerLog log_;
  server::ServerMetrics metrics_;
  server::RouteTable routes_{nullptr};
  std::unique_ptr<server::Service> service_;
};

}  // namespace carat::capi
