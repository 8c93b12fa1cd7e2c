#pragma once

// How wgmma is told where an operand lies in shared memory (PTX ISA, "Matrix descriptor format").
#include <cstdint>

namespace carat::cuda {

// An operand in shared memory: rows (rows of A, columns of B) of 64 16-bit values of k, 128-byte swizzle, groups of 8
// rows 1024 bytes apart. The address of a k step of 16 is 32 bytes after that of the one before it.
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroupBytes = uint64_t{1024 >> 4} << 32,
                     kUnusedForSwizzled = uint64_t{1} << 16;
  return kSwizzle128 | kGroupBytes | kUnusedForSwizzled | ((address & 0x3ffffu) >> 4);
}
// An operand B that lies the other way: rows are k, 64 columns of the result each, 128-byte swizzle, groups of 8 rows
// 1024 bytes apart; the next 64 columns begin `block_bytes` later. A k step of 16 is 2048 bytes.
__device__ __forceinline__ uint64_t wgmma_operand_rows(uint32_t address, uint32_t block_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroupBytes = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kGroupBytes | uint64_t{block_bytes >> 4} << 16 | ((address & 0x3ffffu) >> 4);
}

// The operand `bytes` further on.
__device__ __forceinline__ uint64_t further(uint64_t operand, uint32_t bytes) { return operand + (bytes >> 4); }

}  // namespace carat::cuda
