#include "exec/cuda/plan/megakernel_choice.h"

#include <fmt/format.h>

#include <vector>

#include "exec/cuda/kernels/megakernel/megakernel_shape.h"
#include "exec/cuda/plan/split.h"
#include "exec/cuda/weights/matrix_groups.h"
#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

namespace {

// The copies it uses came with 9.0; nothing newer was measured.
constexpr uint32_t kLeastCapability = 90, kMeasuredCapability = 90;

// The products that decide how much shared memory the weights in flight need; those that are left out are smaller.
std::vector<MegakernelWeights> large_products(const model::Model& model) {
  const model::Config& config = model.config();
  std::vector<MegakernelWeights> products;
  const auto add = [&](const model::Matrix& m, uint32_t rows, uint32_t run = 1, uint32_t copies = 1) {
    products.push_back({packing_of(m.format), rows, run, steps_of(m.cols) * copies, steps_of(m.cols)});
  };
  for (const model::Layer& layer : config.layers) {
    for_each_group(model, layer.index, [&](const LayerGroup& group) {
      switch (group.kind()) {
        case GroupKind::kQkv:
          return add(group[0], layer.H * layer.hd);
        case GroupKind::kAttentionOutput:
        case GroupKind::kDown:
          return add(group[0], config.d);
        case GroupKind::kGateUp:
          return add(group[0], 2 * layer.F, layer.F > kMegakernelMostWords ? 2 * kMegakernelEight : 2);
        case GroupKind::kExpertGateUp:
          return add(group[0], config.experts_used * 2 * config.F_expert, 2 * kMegakernelEight);
        case GroupKind::kExpertDown:
          return add(group[0], config.d, 1, config.experts_used);
        case GroupKind::kPleGate:
        case GroupKind::kPleProject:
        case GroupKind::kRouter:
          return;
      }
    });
  }
  add(model.weights().output, config.V);
  return products;
}

}  // namespace

std::string megakernel_obstacle(const model::Model& model, const GpuFacts& gpu, const PlanRequest& request) {
  const model::Config& config = model.config();
  if (gpu.capability < kLeastCapability) return "it needs compute capability 9.0";
  if (gpu.capability != kMeasuredCapability && request.kernels.find("decode") != "token") {
    return "it was measured on compute capability 9.0 only; decode=token asks for it";
  }
  if (request.kv_format != quant::Format::kF16) return "it reads keys and values as F16";
  if (request.gpu_layers && wished_split(config, *request.gpu_layers) > 0) return "layers run on the CPU";
  if (config.P > kMegakernelMaxPle || config.experts_used > kMegakernelMaxExpertsUsed ||
      config.d > kMegakernelWidestStream) {
    return "the model is wider than it is made for";
  }
  if (config.P % 8 != 0) return "per-layer embeddings of a width that is no multiple of 8";
  // Blocks without a part in a product would not be waited for by those who write what they read.
  if (config.d < gpu.sm_count) return "the model is too narrow for so many SMs";
  for (const model::Layer& layer : config.layers) {
    const model::LayerWeights& weights = model.weights().layers[layer.index];
    if (layer.hd != 256 && layer.hd != 512) return fmt::format("head size {}", layer.hd);
    if (layer.H / layer.Hkv > kMegakernelMaxHeads || layer.Hkv > gpu.sm_count) return "the number of heads";
    if (packing_of(weights.ffn_gate.format) != packing_of(weights.ffn_up.format)) {
      return fmt::format("gate and up matrices of layer {} differ in format", layer.index);
    }
    if (config.d % 8 != 0 || layer.F % kMegakernelEight != 0) return "a width that is no multiple of 8";
    if (!layer.moe) continue;
    if (config.F_expert % kMegakernelEight != 0) return "an experts' width that is no multiple of 8";
    if (config.experts > kMegakernelRouterRows * gpu.sm_count) return "there are too few SMs for so many experts";
    if (config.d > kMegakernelThreads * kMegakernelThreadColumns)
      return "a mixture of experts wider than it is made for";
    if (weights.ffn_gate_up_exps.empty() &&
        packing_of(weights.ffn_gate_exps.format) != packing_of(weights.ffn_up_exps.format)) {
      return fmt::format("gate and up matrices of layer {}'s experts differ in format", layer.index);
    }
    // A lane of the warp that loads copies one plane of one expert.
    const PackedBytes planes = packed_bytes(packing_of(weights.ffn_down_exps.format));
    const uint32_t count = 1 + (planes.high != 0) + (planes.scales != 0) + (planes.super != 0);
    if (planes.scales == 0 || config.experts_used * count > 32) return "the experts' format";
  }
  if (megakernel_memory(large_products(model), config.d, gpu.sm_count, gpu.shared_memory).slots == 0) {
    return fmt::format("its weights in flight do not fit {} KB of shared memory", gpu.shared_memory / 1024);
  }
  return "";
}

}  // namespace carat::cuda
