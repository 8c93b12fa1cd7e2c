#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/runner/runner_snapshot.h"
#include "server/api/facts.h"
#include "server/http/http_server.h"
#include "server/metrics/process_figures.h"
#include "server/metrics/server_metrics.h"

namespace carat::server {

// Under which names metrics are shown besides carat's own.
struct MetricsCompat {
  bool vllm = true;       // what gateways and dashboards look for; the older names with gpu_ too
  bool llamacpp = false;  // llama-server's
};
// Of the flag --metrics-compat: "vllm", "llamacpp", both with a comma between them, or "none". Throws kBadArgument.
MetricsCompat parse_metrics_compat(std::string_view text);

// All that the metrics are made of. `runner` and `facts` are not there while the model is loaded.
struct MetricsSources {
  std::string_view version = {};   // of carat
  std::string_view executor = {};  // Runner::executor_name()
  const ServerFigures& server;
  const HttpFigures& http;
  std::optional<engine::RunnerSnapshot> runner = {};
  const ServerFacts* facts = nullptr;
  std::optional<ProcessFigures> process = {};
};

inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

// The answer to GET /metrics in Prometheus's text format 0.0.4. Pure.
std::string metrics_text(const MetricsSources& sources, const MetricsCompat& compat);

}  // namespace carat::server
