#include "exec/cuda/token_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "exec/cuda/kernels/token_shape.h"
#include "exec/cuda/split.h"
#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

namespace {

constexpr uint32_t kMeasuredCapability = 90;

}  // namespace

std::string token_obstacle(const model::Model& model, const GpuFacts& gpu, const PlanRequest& request) {
  const model::Config& config = model.config();
  if (gpu.capability < kMeasuredCapability && request.kernels.find("decode") != "token") {
    return "it was measured on compute capability 9.0 only; decode=token asks for it";
  }
  if (request.kv_format != quant::Format::kF16) return "it reads keys and values as F16";
  if (request.gpu_layers && wished_split(config, *request.gpu_layers) > 0) return "layers run on the CPU";
  if (config.d > kTokenMaxWidth || config.P > kTokenMaxPle || config.experts_used > kTokenMaxExpertsUsed) {
    return "the model is wider than it is made for";
  }
  uint32_t region = token_attention_bytes();
  const auto product = [&](const model::Matrix& m, uint32_t groups, uint32_t copies = 1) {
    const uint32_t steps = steps_of(m.cols) * copies;
    const uint32_t slices = token_slices(groups, steps, gpu.sm_count);
    region = std::max(region, token_product_bytes(packing_of(m.format), steps, groups, slices, gpu.sm_count));
  };
  for (const model::Layer& layer : config.layers) {
    const model::LayerWeights& weights = model.weights().layers[layer.index];
    if (layer.hd != 256 && layer.hd != 512) return fmt::format("head size {}", layer.hd);
    if (layer.H / layer.Hkv > kTokenMaxHeads || layer.Hkv > gpu.sm_count) return "the number of heads";
    if (packing_of(weights.ffn_gate.format) != packing_of(weights.ffn_up.format)) {
      return fmt::format("gate and up matrices of layer {} differ in format", layer.index);
    }
    if (config.d % 4 != 0 || layer.F % 4 != 0) return "widths that are no multiple of 4";
    product(weights.ffn_down, config.d / kTokenRows);
    product(weights.ffn_gate, layer.F / 2);
    product(weights.attn_output, config.d / kTokenRows);
    product(weights.attn_q, layer.H * layer.hd / kTokenRows);
    if (!layer.moe) continue;
    if (config.F_expert % 4 != 0 || config.experts % 4 != 0) return "widths that are no multiple of 4";
    if (weights.ffn_gate_up_exps.empty() &&
        packing_of(weights.ffn_gate_exps.format) != packing_of(weights.ffn_up_exps.format)) {
      return fmt::format("gate and up matrices of layer {}'s experts differ in format", layer.index);
    }
    if (is_float_packing(packing_of(weights.ffn_down_exps.format))) return "the experts' format";
    product(weights.ffn_down_exps, config.d / kTokenRows, config.experts_used);
    product(weights.ffn_gate_up_exps.empty() ? weights.ffn_gate_exps : weights.ffn_gate_up_exps,
            config.experts_used * config.F_expert / 2);
  }
  product(model.weights().output, config.V / kTokenRows);
  if (token_ring_depth(region, config.d, gpu.shared_memory) == 0) {
    return fmt::format("its weights in flight do not fit {} KB of shared memory", gpu.shared_memory / 1024);
  }
  return "";
}

}  // namespace carat::cuda
