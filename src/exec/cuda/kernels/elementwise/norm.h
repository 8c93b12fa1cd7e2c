#pragma once

#include <cuda_bf16.h>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemv/activation.h"

namespace carat::cuda {

// Prompt chunks: the residual step of every row, its result as bf16 [rows, d] for the next matrix product. In place
// (x_out == x) is allowed here, because a block reads only its own row.
void residual_norm_bf16(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, __nv_bfloat16* out,
                        const LaunchConfig& launch);

// The same with an fp32 result: the input of an expert router.
void residual_norm_float(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, float* out,
                         const LaunchConfig& launch);

// out[i] = x[index[i]]: the rows that go on after the shared-KV shortcut. [count, d] fp32.
void gather_float_rows(const float* x, const uint32_t* index, uint32_t count, uint32_t d, float* out,
                       const LaunchConfig& launch);

// fp32 to bf16, count values.
void to_bf16(const float* values, uint64_t count, __nv_bfloat16* out, const LaunchConfig& launch);

}  // namespace carat::cuda
