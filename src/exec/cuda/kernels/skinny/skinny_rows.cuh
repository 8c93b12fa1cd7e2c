#pragma once

// Device code: activations as fp16 operands of the tensor cores (layout in skinny_rows.h).
#include <cuda_fp16.h>

#include "exec/cuda/kernels/skinny/skinny_rows.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// The power of two that brings `largest` to 2^14 ... 2^15; NaN where it is not finite, so that every product shows it.
__device__ __forceinline__ float skinny_scale(float largest) {
  if (!(largest > 0.0f)) return largest == 0.0f ? 1.0f : largest;
  if (isinf(largest)) return __int_as_float(0x7fffffff);
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127 - 14;
  return __uint_as_float(static_cast<uint32_t>(max(exponent, -100) + 127) << 23);
}

__device__ __forceinline__ uint32_t half_pair(float a, float b) {
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Columns 0..7 of a chunk, times `inverse`.
__device__ __forceinline__ uint4 skinny_chunk(const float4& a, const float4& b, float inverse) {
  return make_uint4(half_pair(a.x * inverse, a.z * inverse), half_pair(a.y * inverse, a.w * inverse),
                    half_pair(b.x * inverse, b.z * inverse), half_pair(b.y * inverse, b.w * inverse));
}

// Where the 8 columns from `column` (a multiple of 8) of a row lie.
__device__ __forceinline__ uint32_t skinny_place(uint32_t column, uint32_t row, uint32_t tiles) {
  const uint32_t block = column % kStep / 32;
  const uint32_t chunk = column / kStep * 8 + block / 4 * 4 + column % 32 / 8;
  return (chunk * tiles + row / kSkinnyTileRows) * 32 + row % kSkinnyTileRows * 4 + block % 4;
}

}  // namespace carat::cuda
