#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "exec/executor.h"
#include "model/model.h"

namespace carat::exec {

// Sees intermediate values while a pass runs: one call per row, `row` counting in the order given to forward().
// Stages, with the letters of docs/gemma4.md 3: "embedding" (x before layer 0) and "ple" (all layers' slices) with
// layer 0; "attention" (h), "feed_forward" (y before the PLE) and "layer" (x) of each layer; "final_norm" (z) with
// layer L.
using Trace = std::function<void(std::string_view stage, uint32_t layer, uint32_t row, std::span<const float> values)>;

// The executable specification: reads like docs/gemma4.md 3, stores fp32, sums in double, one operation at a time
// on any machine. It is what every other executor is compared with, so it is kept plain, never fast. The cache holds
// fp32 whatever options.kv_format says, and options() says so. Results do not depend on the number of threads, on how
// rows are batched, or on kv_share_shortcut, bit for bit.
std::unique_ptr<Executor> make_reference_executor(std::shared_ptr<const model::Model> model,
                                                  const ExecutorOptions& options, Trace trace = {});

}  // namespace carat::exec
