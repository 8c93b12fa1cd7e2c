#pragma once

#include <functional>
#include <string_view>

#include "server/api/dialect.h"
#include "server/metrics/server_metrics.h"

namespace carat::server {

// How requests of one route for text are read and answered. Lives as long as the server.
struct GenerationRoute {
  Dialect dialect = Dialect::kOpenAi;
  MetricLabel api = "openai";
  MetricLabel route = "none";
  // Throws ApiError for a body that cannot be answered.
  std::function<ParsedRequest(std::string_view body)> read = {};
  std::string_view id_prefix = "chatcmpl-";  // of answers
};

}  // namespace carat::server
