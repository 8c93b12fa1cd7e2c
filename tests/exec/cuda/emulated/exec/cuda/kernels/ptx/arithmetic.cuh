#pragma once

// ptx/arithmetic.cuh on the emulated machine.
#include "exec/cuda/emulated/language.h"

namespace carat::cuda {

inline float max_or_nan(float a, float b) { return isnan(a) || isnan(b) ? NAN : fmaxf(a, b); }
inline float reciprocal_fast(float v) { return 1.0f / v; }
inline float rsqrt_fast(float v) { return 1.0f / sqrtf(v); }
inline int dp4a_unsigned_signed(uint32_t w, uint32_t x, int sum) {
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<int>(static_cast<uint8_t>(w >> (8 * i))) * static_cast<int8_t>(x >> (8 * i));
  }
  return sum;
}

}  // namespace carat::cuda
