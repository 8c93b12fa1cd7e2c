#pragma once

// Device code: which experts a row goes to (spec 3.6), decided by one warp.
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/moe.h"

namespace carat::cuda {

struct ExpertChoice {
  uint32_t expert;
  float weight;
};

// logits[i]: of expert lane + 32 i, -infinity past the last. Softmax over all experts, the `used` most probable (equal
// ones: the lower expert first), renormalised, times the expert's scale. Lane s gets the s-th choice.
__device__ __forceinline__ ExpertChoice choose_experts(float (&logits)[kMaxExperts / 32], uint32_t experts,
                                                       uint32_t used, const float* expert_scale) {
  constexpr uint32_t kPerLane = kMaxExperts / 32;
  const uint32_t lane = threadIdx.x % 32;
  float(&p)[kPerLane] = logits;
  float largest = -INFINITY;
#pragma unroll
  for (uint32_t i = 0; i < kPerLane; ++i) largest = fmaxf(largest, p[i]);
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kPerLane; ++i) {
    p[i] = lane + 32 * i < experts ? expf(p[i] - largest) : -1.0f;
    if (p[i] >= 0.0f) sum += p[i];
  }
  sum = warp_sum(sum);

  float chosen_sum = 0.0f;
  ExpertChoice mine{0, 0.0f};
  for (uint32_t s = 0; s < used; ++s) {
    float best = -1.0f;
    uint32_t best_id = 0xffffffffu;
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      if (p[i] > best) {  // strictly greater: the lower expert wins a tie
        best = p[i];
        best_id = lane + 32 * i;
      }
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
      const float other = __shfl_xor_sync(0xffffffffu, best, offset);
      const uint32_t other_id = __shfl_xor_sync(0xffffffffu, best_id, offset);
      if (other > best || (other == best && other_id < best_id)) {
        best = other;
        best_id = other_id;
      }
    }
    // All-NaN logits leave nothing to choose; expert 0 with a NaN weight keeps the failure visible.
    if (best_id == 0xffffffffu) {
      best_id = 0;
      best = __int_as_float(0x7fc00000);
    }
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      if (lane + 32 * i == best_id) p[i] = -1.0f;
    }
    const float probability = best / sum;
    chosen_sum += probability;
    if (lane == s) mine = {best_id, probability};
  }
  mine.weight = mine.weight / fmaxf(chosen_sum, 6.103515625e-5f) * (lane < used ? expert_scale[mine.expert] : 0.0f);
  return mine;
}

}  // namespace carat::cuda
