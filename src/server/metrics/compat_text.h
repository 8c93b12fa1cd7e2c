#pragma once

#include <string>

#include "server/metrics/metrics_text.h"

namespace carat::server {

// The same figures under the names of other servers, for gateways and dashboards that were made for these. What carat
// does not have, such as blocks of the cache, is left out. Pure.
void append_vllm_metrics(const MetricsSources& sources, std::string& out);
void append_llamacpp_metrics(const MetricsSources& sources, std::string& out);

// The part of the cache that is in use, 0 to 1.
double cache_usage(const engine::RunnerSnapshot& runner);

}  // namespace carat::server
