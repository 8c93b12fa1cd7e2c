#pragma once

// Device code: which experts a row goes to (docs/gemma4.md 3.6), decided by one warp.
#include "exec/cuda/kernels/gemv/activation.cuh"
#include "exec/cuda/kernels/moe/moe.h"
#include "exec/cuda/kernels/select/ordered.cuh"

namespace carat::cuda {

inline constexpr uint32_t kLaneExperts = kMaxExperts / 32;

// Softmax over all experts, the `used` most probable (equal ones: the lower expert first), renormalised, times the
// expert's scale. logits[i]: of expert lane + 32 i, as far as there are so many. Lane s gets the s-th expert, which it
// is told by chosen(expert) long before its weight, the result, is known: softmax keeps the order.
template <typename Chosen>
__device__ __forceinline__ float choose_experts(const float (&logits)[kLaneExperts], uint32_t experts, uint32_t used,
                                                const float* expert_scale, const Chosen& chosen) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t left[kLaneExperts];  // those that were not chosen yet; 0, which no number has: none, or NaN
#pragma unroll
  for (uint32_t i = 0; i < kLaneExperts; ++i) left[i] = 0;
#pragma unroll
  for (uint32_t i = 0; i < kLaneExperts; ++i) {
    if (lane + 32 * i < experts && !isnan(logits[i])) left[i] = ordered_key(logits[i]);
  }
  uint32_t mine = 0, my_expert = 0, top = 0;
#pragma unroll 1
  for (uint32_t s = 0; s < used; ++s) {
    uint32_t best = 0, expert = 0xffffffffu;
#pragma unroll
    for (uint32_t i = 0; i < kLaneExperts; ++i) {
      if (left[i] > best) {  // strictly greater: the lower expert wins a tie
        best = left[i];
        expert = lane + 32 * i;
      }
    }
    const uint32_t most = __reduce_max_sync(0xffffffffu, best);
    expert = __reduce_min_sync(0xffffffffu, best == most ? expert : 0xffffffffu);
    // Where all that is left is NaN there is nothing to choose; expert 0 with a NaN weight keeps the failure visible.
    if (most == 0) expert = 0;
#pragma unroll
    for (uint32_t i = 0; i < kLaneExperts; ++i) {
      if (lane + 32 * i == expert) left[i] = 0;
    }
    if (s == 0) top = most;
    if (lane == s) mine = most, my_expert = expert;
  }
  chosen(my_expert);
  const auto value = [](uint32_t key) { return key == 0 ? __int_as_float(0x7fc00000) : key_value(key); };
  const float largest = value(top);
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kLaneExperts; ++i) {
    const float p = expf(logits[i] - largest);
    if (lane + 32 * i < experts && p >= 0.0f) sum += p;
  }
  sum = warp_sum(sum);
  const float probability = lane < used ? expf(value(mine) - largest) / sum : 0.0f;
  const float chosen_sum = warp_sum(probability);
  return probability / fmaxf(chosen_sum, 6.103515625e-5f) * (lane < used ? expert_scale[my_expert] : 0.0f);
}

}  // namespace carat::cuda
