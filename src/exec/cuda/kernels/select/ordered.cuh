#pragma once

// Device code: floats as integers of the same order, for what can only compare integers. A NaN is beyond the
// infinities.
#include <cstdint>

namespace carat::cuda {

__device__ __forceinline__ uint32_t ordered_key(float v) {
  const uint32_t bits = __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float key_value(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

}  // namespace carat::cuda
