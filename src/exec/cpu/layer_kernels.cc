#include "exec/cpu/layer_kernels.h"

#include <cmath>

namespace carat::exec::cpu {

LayerKernels::LayerKernels(const KernelTable& kernels, const model::Config& config, const model::Layer& layer,
                           const model::LayerWeights& weights, bool int16) {
  const auto prepare = [&](const model::Matrix& matrix) { return WeightMatrix(kernels, matrix, int16); };
  attn_q = prepare(weights.attn_q);
  if (layer.owns_kv) {
    attn_k = prepare(weights.attn_k);
    if (!layer.v_from_k) attn_v = prepare(weights.attn_v);
  }
  attn_output = prepare(weights.attn_output);
  ffn_gate = prepare(weights.ffn_gate);
  ffn_up = prepare(weights.ffn_up);
  ffn_down = prepare(weights.ffn_down);
  if (config.P > 0) {
    inp_gate = prepare(weights.inp_gate);
    proj = prepare(weights.proj);
  }
  if (!layer.moe) return;
  router = prepare(weights.ffn_gate_inp);
  for (uint32_t expert = 0; expert < config.experts; ++expert) {
    expert_gate.push_back(prepare(weights.expert_gate(expert)));
    expert_up.push_back(prepare(weights.expert_up(expert)));
    expert_down.push_back(prepare(weights.expert_down(expert)));
  }
  router_scale = weights.ffn_gate_inp_scale;
  const double scale = 1.0 / std::sqrt(static_cast<double>(config.d));
  for (float& value : router_scale) value = static_cast<float>(value * scale);
}

}  // namespace carat::exec::cpu
