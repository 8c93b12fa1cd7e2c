#pragma once

// Asynchronous bulk operations without a tensor map (cp.async.bulk, sm_90).
#include <cstdint>

namespace carat::cuda {

// Asks for memory to come to the L2 cache: whole 16 bytes.
__device__ __forceinline__ void prefetch_l2_bulk(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

}  // namespace carat::cuda
