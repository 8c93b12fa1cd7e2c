#pragma once

#include <cstdint>
#include <vector>

#include "exec/cpu/matmul/matmul.h"
#include "model/model.h"

namespace carat::exec::cpu {

// Which products take activations as 16-bit instead of 8-bit integers.
struct Precision {
  bool layers = false;  // all products inside the layers
  bool head = false;    // the LM head: its rounding goes straight into the logits
};

// The matrices of one layer with their kernels.
struct LayerKernels {
  LayerKernels(const KernelTable& kernels, const model::Config& config, const model::Layer& layer,
               const model::LayerWeights& weights, bool int16);

  WeightMatrix attn_q, attn_k, attn_v, attn_output;  // attn_k and attn_v of layers that own them
  WeightMatrix ffn_gate, ffn_up, ffn_down;
  WeightMatrix inp_gate, proj;                                    // P > 0
  WeightMatrix router;                                            // MoE
  std::vector<WeightMatrix> expert_gate, expert_up, expert_down;  // [experts]
  std::vector<float> router_scale;                                // [d]: ffn_gate_inp.scale / sqrt(d)
};

}  // namespace carat::exec::cpu
