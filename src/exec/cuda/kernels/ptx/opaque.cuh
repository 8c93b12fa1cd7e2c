#pragma once

// A value that the optimiser knows nothing about.
#include <cstdint>

namespace carat::cuda {

// The same value, but nothing computed from it is kept ready outside a loop: dozens of operands in registers would
// drive others to memory.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace carat::cuda
