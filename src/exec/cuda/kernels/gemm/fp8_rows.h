#pragma once

#include <cuda_bf16.h>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemm/fp8.h"
#include "exec/cuda/kernels/gemv/activation.h"

namespace carat::cuda {

// Activations as the input of e4m3 products: each row divided by (its largest value / 448) and rounded to the nearest.
// Rows without a value above 1e-30 are zero; NaN and infinity make the scale, and with it every result, non-finite.
// Widths as fp8_columns_fit() says.

// values [rows, cols]
void round_fp8(const __nv_bfloat16* values, uint32_t rows, uint32_t cols, const Fp8Rows& out,
               const LaunchConfig& launch);
// The residual step of every row; its result rounded without becoming bf16 first.
void residual_norm_fp8(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, const Fp8Rows& out,
                       const LaunchConfig& launch);
// gelu(gate) * up of [rows, 2 F], to bf16 and then rounded, as geglu() and round_fp8() would.
void geglu_fp8(const __nv_bfloat16* gate_up, uint32_t rows, uint32_t F, const Fp8Rows& out, const LaunchConfig& launch);

}  // namespace carat::cuda
