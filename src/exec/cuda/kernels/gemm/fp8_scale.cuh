#pragma once

// Device code: rounding to e4m3 with the scale of a row. Where the card cannot convert, the header does it in integers.
#include <cuda_fp8.h>

#include <cstdint>

#include "exec/cuda/kernels/gemm/fp8.h"

namespace carat::cuda {

struct Fp8Scale {
  float scale, inverse;

  // largest: of the row's |v|, or NaN. Below 1e-30 the inverse would overflow, and such rows are nothing beside others.
  // NaN and infinity stay in the scale, so that they show in every result.
  __device__ explicit Fp8Scale(float largest) {
    constexpr float kLeast = 1e-30f;
    scale = largest < kLeast ? 0.0f : largest * (1.0f / kLargestE4M3);
    inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  }

  // Four values as bytes, the first lowest.
  __device__ uint32_t four(float a, float b, float c, float d) const {
    const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a * inverse, b * inverse), __NV_SATFINITE, __NV_E4M3);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c * inverse, d * inverse), __NV_SATFINITE, __NV_E4M3);
    return low | high << 16;
  }
};

}  // namespace carat::cuda
