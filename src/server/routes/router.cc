#include "server/routes/router.h"

#include <utility>

#include "server/api/llama/info.h"
#include "server/api/ollama/models.h"
#include "server/metrics/process_figures.h"
#include "server/routes/page_response.h"

namespace carat::server {

Router::Router(RouterOptions options, ServerMetrics& metrics, const ServerLog& log)
    : options_(std::move(options)),
      access_(options_.access),
      table_(options_.responses),
      metrics_(metrics),
      log_(log) {}

void Router::set_service(std::shared_ptr<Service> service) {
  const std::lock_guard lock(mutex_);
  service_ = std::move(service);
}

void Router::set_figures(std::function<HttpFigures()> figures) {
  const std::lock_guard lock(mutex_);
  http_figures_ = std::move(figures);
}

std::shared_ptr<Service> Router::service() const {
  const std::lock_guard lock(mutex_);
  return service_;
}

void Router::handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (const auto problem = access_.check_origin(request)) return refuse(*exchange, nullptr, *problem);
  if (const auto origin = access_.allowed_origin(request)) {
    exchange->add_header("Access-Control-Allow-Origin", *origin);
    exchange->add_header("Vary", "Origin");
  }
  if (request.method == "OPTIONS") return answer_preflight(*exchange);
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const Route* route = table_.find(method, request.path);
  if (route == nullptr) {
    const std::string allowed = table_.allowed(request.path);
    if (allowed.empty()) {
      return refuse(*exchange, nullptr,
                    {.refusal = Refusal::kNotFound, .message = "there is nothing at this path; see docs/server.md"});
    }
    exchange->add_header("Allow", allowed);
    return refuse(*exchange, nullptr,
                  {.refusal = Refusal::kMethod, .message = fmt::format("this path takes {} only", allowed)});
  }
  if (!route->is_public) {
    if (const auto problem = access_.check_key(request)) return refuse(*exchange, route, *problem);
  }
  if (request.has_header("content-encoding") && request.header("content-encoding") != "identity") {
    return refuse(*exchange, route, {.refusal = Refusal::kMediaType, .message = "compressed bodies are not supported"});
  }
  dispatch(exchange, *route);
}

void Router::dispatch(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  if (route.work == Route::Work::kServer) return answer_server(*exchange, route);
  const std::shared_ptr<Service> service = this->service();
  if (!service) {
    return refuse(*exchange, &route,
                  {.refusal = Refusal::kLoading, .message = "the model is being loaded", .retry_after = 1.0});
  }
  switch (route.work) {
    case Route::Work::kGenerate:
      return service->generate(exchange, route.text);
    case Route::Work::kPool:
      return service->answer(exchange, route.text,
                             [service, exchange, &route] { return route.make(*service, exchange->request()); });
    case Route::Work::kAtOnce:
      break;
    case Route::Work::kServer:
      return;
  }
  try {
    respond(*exchange, &route, route.make(*service, exchange->request()));
  } catch (const ApiError& error) {
    refuse(*exchange, &route, error.problem());
  }
}

void Router::answer_server(Exchange& exchange, const Route& route) {
  if (route.path == "/metrics") return respond(exchange, &route, metrics_response());
  if (route.path == "/livez") return respond(exchange, &route, alive());
  if (route.path == "/health" || route.path == "/v1/health") return respond(exchange, &route, health());
  const HttpRequest& request = exchange.request();
  if (route.path == "/page/*") {
    Response file = page_response(request.path.substr(std::string_view("/page/").size()), request);
    if (file.status != 0) return respond(exchange, &route, std::move(file));
    return refuse(exchange, &route, {.refusal = Refusal::kNotFound, .message = "the page has no file of this name"});
  }
  if (wants_page(request)) return respond(exchange, &route, page_response("index.html", request));
  // Ollama's clients look for these words; Claude Code only for an answer.
  Response greeting = ollama_greeting();
  greeting.headers.emplace_back("Vary", "Accept");
  respond(exchange, &route, std::move(greeting));
}

Response Router::health() const {
  switch (metrics_.state()) {
    case ServerState::kLoading:
      return health_loading(progress_);
    case ServerState::kDraining:
      return health_draining();
    case ServerState::kReady:
      break;
  }
  const auto service = this->service();
  const bool is_lost = service && service->snapshot().state == engine::RunnerState::kLost;
  if (!is_lost) return health_ok();
  return refusal_response(Dialect::kOpenAi,
                          {.refusal = Refusal::kFailed, .message = "the engine is lost; restart the server"}, "");
}

Response Router::alive() const {
  const auto service = this->service();
  if (service) {
    const engine::RunnerSnapshot snapshot = service->snapshot();
    const bool has_work = snapshot.running > 0 || snapshot.waiting > 0;
    const bool is_stuck = has_work && Delivery::seconds() - snapshot.seconds > options_.stuck_seconds;
    if (is_stuck || snapshot.state == engine::RunnerState::kLost) {
      return refusal_response(Dialect::kOpenAi, {.refusal = Refusal::kFailed, .message = "the engine does not answer"},
                              "");
    }
  }
  return {.body = R"({"status":"alive"})"};
}

Response Router::metrics_response() const {
  const auto service = this->service();
  std::function<HttpFigures()> http;
  {
    const std::lock_guard lock(mutex_);
    http = http_figures_;
  }
  const ServerFigures server = metrics_.figures();
  const HttpFigures connections = http ? http() : HttpFigures{};
  MetricsSources sources{
      .version = options_.version, .server = server, .http = connections, .process = read_process_figures()};
  if (service) {
    sources.runner = service->snapshot();
    sources.facts = &service->facts();
    sources.executor = service->engine_runner().executor_name();
  }
  return {.content_type = std::string(kMetricsType), .body = metrics_text(sources, options_.metrics_compat)};
}

void Router::answer_preflight(Exchange& exchange) const {
  exchange.add_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  const std::string_view wanted = exchange.request().header("access-control-request-headers");
  exchange.add_header("Access-Control-Allow-Headers", wanted.empty() ? "*" : std::string(wanted));
  exchange.add_header("Access-Control-Max-Age", "600");
  respond(exchange, nullptr, {.status = 204});
}

void Router::respond(Exchange& exchange, const Route* route, Response response) const {
  const HttpRequest& request = exchange.request();
  metrics_.count_request(route ? route->text.api : "carat", route ? route->text.route : "none", response.status);
  // Probes and scrapes come every second and say nothing.
  if (route == nullptr || route->work != Route::Work::kServer) {
    log_.request({.method = request.method,
                  .route = route ? route->text.route.text() : "none",
                  .status = response.status,
                  .request_id = request.id});
  }
  exchange.respond(std::move(response));
}

void Router::refuse(Exchange& exchange, const Route* route, const Problem& problem) const {
  const Dialect dialect = route ? route->text.dialect : dialect_of(exchange.request().path);
  respond(exchange, route, refusal_response(dialect, problem, exchange.request().id));
}

Response Router::refusal(const Problem& problem, std::string_view path) const {
  metrics_.count_request("carat", "none", status_of(problem.refusal));
  return refusal_response(dialect_of(path), problem, "");
}

}  // namespace carat::server
