#pragma once

#include <cuda_bf16.h>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemv/activation.h"
#include "exec/cuda/kernels/ple/ple_step_shape.h"
#include "exec/cuda/kernels/skinny/skinny_rows.h"

namespace carat::cuda {

// The end of a layer of a decode step: from what the feed-forward products left to the input of the next layer.
//   v = x + rms(delta) * delta_norm
//   y = proj (gelu(gate v) * factors)
//   u = (v + rms(y) * post_norm) * scale            the residual stream, to x_out (may be x)
//   n = rms(u) * next_norm                          the result
template <typename Delta>
struct PleStep {
  ResidualNormOf<Delta> residual{};  // all but experts; nothing may be left out
  PackedView gate, proj;             // [P, d] and [d, P]: ple_step_reads()
  const float* factors = nullptr;    // [rows, factors_leading], P of each row
  uint32_t factors_leading = 0;
  const float* post_norm = nullptr;  // [d]
  float bound = 0.0f;                // no |n| is larger: sqrt(d) times the largest |next_norm|; for SkinnyRows
};

// The result as operands of batched products, or as bf16 [rows, d].
void ple_step(const PleStep<float>& job, uint32_t rows, const SkinnyRows& out, const LaunchConfig& launch);
void ple_step(const PleStep<__nv_bfloat16>& job, uint32_t rows, __nv_bfloat16* out, const LaunchConfig& launch);

}  // namespace carat::cuda
