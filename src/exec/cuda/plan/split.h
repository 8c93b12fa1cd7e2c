#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/model.h"

namespace carat::cuda {

// A model that does not fit is cut in two: layers [0, first) run on the CPU, the others and the LM head on the GPU. The
// residual stream crosses over once a pass, and nothing comes back.

// The largest first layer of the GPU's part. A layer that shares keys and values needs its source beside it, and the
// last two layers that own theirs stay together, because a prompt's rows without logits end in the last of them.
uint32_t last_split(const model::Config& config);

// The first layer of the GPU's part for a number of layers that was asked for: as near as last_split() allows, which
// means more layers on the GPU where fewer cannot be separated. Throws kBadArgument for 0 layers.
uint32_t wished_split(const model::Config& config, uint32_t gpu_layers);

// What leaving layers to the CPU takes and costs.
struct SplitPlan {
  uint32_t last_possible = 0;    // last_split()
  std::string reason;            // why the layers are where they are
  uint64_t weight_bytes = 0;     // of the layers on the CPU, which read them from the mapped file
  uint64_t kv_bytes = 0;         // their keys and values in host memory
  uint64_t bytes_per_token = 0;  // of their weights that one token needs: of the experts only those it is routed to
};

// The sizes; the reason is the plan's to give.
SplitPlan measure_split(const model::Model& model, uint32_t first_layer, uint32_t context, uint32_t chunk,
                        uint32_t sequences, quant::Format kv_format);

// fits: whether the plan with this split does. gpu_layers: what was asked for.
std::string explain_split(const model::Config& config, uint32_t first_layer, bool fits,
                          std::optional<uint32_t> gpu_layers);

// Two channels of DDR4-3200 deliver about this much; used where nothing was measured.
inline constexpr double kAssumedHostBandwidth = 40e9;

// "each token reads 1.20 GB of weights there: 30.0 ms at an assumed 40 GB/s, so no more than 33 tokens/s (an
// estimate)". `origin`: "an assumed" or "the measured".
std::string cost_text(const SplitPlan& split, double bytes_per_second, std::string_view origin);

}  // namespace carat::cuda
