#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http/exchange.h"
#include "server/http/http_server.h"
#include "server/metrics/metrics_text.h"
#include "server/routes/access.h"
#include "server/routes/route_table.h"
#include "server/server_log.h"
#include "server/service/service.h"

namespace carat::server {

struct RouterOptions {
  AccessOptions access;
  MetricsCompat metrics_compat;
  std::string version;  // of carat
  std::shared_ptr<ResponseStore> responses = {};
  double stuck_seconds = 60.0;  // a pass that takes longer means that the engine is stuck (/livez)
};

// Who answers what: finds the route of a request, asks whether the request is allowed, and answers, or hands it to the
// service. All functions may be called by any thread; none blocks.
class Router {
 public:
  Router(RouterOptions options, ServerMetrics& metrics, const ServerLog& log);

  void handle(const std::shared_ptr<Exchange>& exchange);
  // What is wrong with a request before it has a route.
  Response refusal(const Problem& problem, std::string_view path) const;

  void set_progress(double share) { progress_ = share; }  // of the loading of the model
  void set_service(std::shared_ptr<Service> service);
  void set_figures(std::function<HttpFigures()> figures);

 private:
  void dispatch(const std::shared_ptr<Exchange>& exchange, const Route& route);
  void answer_server(Exchange& exchange, const Route& route);
  void respond(Exchange& exchange, const Route* route, Response response) const;
  void refuse(Exchange& exchange, const Route* route, const Problem& problem) const;
  void answer_preflight(Exchange& exchange) const;
  std::shared_ptr<Service> service() const;

  Response health() const;
  Response alive() const;
  Response metrics_response() const;

  const RouterOptions options_;
  const Access access_;
  const RouteTable table_;
  ServerMetrics& metrics_;
  const ServerLog& log_;
  std::atomic<double> progress_{0.0};
  mutable std::mutex mutex_;
  std::shared_ptr<Service> service_;
  std::function<HttpFigures()> http_figures_;
};

}  // namespace carat::server
