#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "serve/options.h"
#include "serve/request_result.h"
#include "serve/workload.h"

namespace carat::serve_bench {

// Sends short requests that are not counted. Throws carat::Error with what the server said when one fails.
void warm_up(const TargetOptions& target, const std::string& model, uint32_t requests);

struct LoadProgress {
  uint64_t ended = 0, all = 0, tokens = 0;
  double seconds = 0.0;
};

// Carries a workload out and measures it. One thread. `on_progress` is called every few seconds. `keeps_answers`: also
// where no later turn needs them.
LoadResult run_load(const TargetOptions& target, const std::string& model, const Workload& workload,
                    uint32_t max_concurrency, bool keeps_answers,
                    const std::function<void(const LoadProgress&)>& on_progress);

}  // namespace carat::serve_bench
