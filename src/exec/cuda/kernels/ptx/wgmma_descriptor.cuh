#pragma once

// Matrix descriptors: how wgmma is told where an operand lies in shared memory (PTX ISA, "Matrix descriptor format").
#include <cstdint>

namespace carat::cuda {

// A K-major operand: rows (rows of A, columns of B) of 64 16-bit values of k, 128-byte swizzle, groups of 8 rows 1024
// bytes apart. The next 16 values of k are 32 bytes further on.
__device__ __forceinline__ uint64_t wgmma_descriptor_k_major(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroupBytes = uint64_t{1024 >> 4} << 32,
                     kUnusedForSwizzled = uint64_t{1} << 16;
  return kSwizzle128 | kGroupBytes | kUnusedForSwizzled | ((address & 0x3ffffu) >> 4);
}
// An N-major operand B: rows are k and hold 64 columns of the result each, 128-byte swizzle, groups of 8 rows 1024
// bytes apart; the next 64 columns begin `column_block_bytes` later. The next 16 values of k are 2048 bytes further on.
__device__ __forceinline__ uint64_t wgmma_descriptor_n_major(uint32_t address, uint32_t column_block_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroupBytes = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kGroupBytes | uint64_t{column_block_bytes >> 4} << 16 | ((address & 0x3ffffu) >> 4);
}

// The descriptor of the operand that begins `bytes` further on.
__device__ __forceinline__ uint64_t advance_descriptor(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace carat::cuda
