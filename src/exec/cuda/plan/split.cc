#include "exec/cuda/plan/split.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "exec/cuda/weights/matrix_groups.h"
#include "model/kv_geometry.h"

namespace carat::cuda {

namespace {

// How many layers at the end share keys and values, for a reason's text.
std::string sharing_text(const model::Config& config) {
  if (config.n_kv == config.L) return "";
  return fmt::format(", as the last {} read the keys and values of layers before them", config.L - config.n_kv);
}

}  // namespace

uint32_t last_split(const model::Config& config) {
  if (config.n_kv < 2) return 0;
  uint32_t last = config.n_kv - 2;
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv) last = std::min(last, layer.kv_source);
  }
  return last;
}

uint32_t wished_split(const model::Config& config, uint32_t gpu_layers) {
  if (gpu_layers == 0) {
    fail(ErrorCode::kBadArgument, "-ngl 0 leaves nothing to the GPU: use --device cpu, or give auto, all or a number");
  }
  return gpu_layers >= config.L ? 0 : std::min(config.L - gpu_layers, last_split(config));
}

SplitPlan measure_split(const model::Model& model, uint32_t first_layer, uint32_t context, uint32_t chunk,
                        uint32_t sequences, quant::Format kv_format) {
  const model::Config& config = model.config();
  const model::KvGeometry geometry(config, context, chunk);
  SplitPlan split;
  split.last_possible = last_split(config);
  for (uint32_t i = 0; i < first_layer; ++i) {
    uint64_t always = 0, experts = 0;
    for_each_group(model, i, [&](const LayerGroup& group) {
      for (const model::Matrix* matrix : group) (is_expert(group.kind()) ? experts : always) += matrix->data.size();
    });
    split.weight_bytes += always + experts;
    split.bytes_per_token += always + (experts == 0 ? 0 : experts / config.experts * config.experts_used);
    // Layers before the split own their keys and values.
    split.kv_bytes += 2 * geometry.rows(i, sequences) * quant::info(kv_format).row_bytes(config.layers[i].hd);
  }
  return split;
}

std::string explain_split(const model::Config& config, uint32_t first_layer, bool fits,
                          std::optional<uint32_t> gpu_layers) {
  const uint32_t on_gpu = config.L - first_layer;
  if (gpu_layers) {
    if (on_gpu == std::min(*gpu_layers, config.L)) return "asked for (-ngl)";
    return fmt::format("-ngl {} is taken as {}: no fewer layers can be separated from the rest{}", *gpu_layers, on_gpu,
                       sharing_text(config));
  }
  if (!fits) {
    return fmt::format("not even the last {} layers fit, and no fewer can be separated from the rest{}", on_gpu,
                       sharing_text(config));
  }
  return first_layer == 0 ? "they fit" : "more do not fit";
}

std::string cost_text(const SplitPlan& split, double bytes_per_second, std::string_view origin) {
  const double bytes = static_cast<double>(split.bytes_per_token);
  const double seconds = bytes / bytes_per_second;
  return fmt::format(
      "each token reads {:.2f} GB of weights there: {:.1f} ms at {} {:.0f} GB/s, so no more than {:.0f} tokens/s (an "
      "estimate)",
      bytes / 1e9, seconds * 1e3, origin, bytes_per_second / 1e9, 1.0 / seconds);
}

}  // namespace carat::cuda
