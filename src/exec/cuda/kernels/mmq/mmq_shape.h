#pragma once

#include <cstdint>

#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// What a plan has to know about matrix products of quantised weights and quantised activations (mmq): shapes, tiles
// and sizes, without anything of CUDA.

// How activations are rounded: int8 bytes of a block of 32 values share one scale. kInt8 is one byte a value. kInt16 is
// two, v = scale * (128 h + l): as exact as 16-bit activations, for twice the tensor-core work.
enum class MmqActivations : uint32_t { kInt8 = 1, kInt16 = 2 };  // bytes a value

inline constexpr uint32_t kMmqChunk = 128;    // columns that pass through shared memory at a time
inline constexpr uint32_t kMmqColumns = 128;  // results of a block's tile: weight rows
inline constexpr uint32_t kMmqTallest = 128;  // results of a block's tile: activation rows, at most
inline constexpr uint32_t kMmqTileRows[] = {128, 64, 32};
inline constexpr uint32_t kMmqParts = 3;  // matrices over the same activations that one launch multiplies

constexpr bool mmq_supports(Packing packing) { return !is_float_packing(packing); }
// The minimum of a block needs the sum of the activations it is multiplied with.
constexpr bool mmq_needs_sums(Packing packing) { return packing == Packing::kQ4K || packing == Packing::kQ5K; }

constexpr uint32_t mmq_chunks(uint32_t cols) { return (cols + kMmqChunk - 1) / kMmqChunk; }
// Rows of activation memory: tiles read whole, so what lies behind the last row must be readable.
constexpr uint32_t mmq_padded_rows(uint32_t rows) { return (rows + kMmqTallest - 1) / kMmqTallest * kMmqTallest; }

// Where the scale of row r is among those of its 16 rows: rows r and r + 8, which one thread multiplies, together.
constexpr uint32_t mmq_scale_place(uint32_t row) { return row % 8 * 2 + row / 8 % 2; }

// Bytes of a block's shared memory.
struct MmqMemory {
  uint32_t slot;    // one chunk of both operands
  uint32_t scales;  // of the weights, all warps together
  uint32_t slots;   // chunks in flight; 0: two do not fit kSmallSharedMemory and there is no such kernel
  constexpr uint32_t total() const { return slot * slots + scales; }
};
constexpr MmqMemory mmq_memory(Packing packing, MmqActivations activations, uint32_t tile_rows) {
  constexpr uint32_t kLimit = 99 * 1024, kMostSlots = 3, kBlockScale = sizeof(float), kWarps = 8, kWarpColumns = 32;
  const uint32_t blocks = kMmqChunk / 32;
  const PackedBytes step = packed_bytes(packing);  // of two chunks
  const uint32_t row_planes = mmq_needs_sums(packing) ? 2 : 1;
  const uint32_t column_planes = mmq_needs_sums(packing) || packing == Packing::kQ6K ? 2 : 1;
  MmqMemory memory{};
  memory.slot = tile_rows * (kMmqChunk * static_cast<uint32_t>(activations) + blocks * kBlockScale * row_planes) +
                kMmqColumns * (step.quants + step.high) / 2;
  memory.scales = kWarps * kWarpColumns * blocks * kBlockScale * column_planes;
  memory.slots = (kLimit - memory.scales) / memory.slot;
  if (memory.slots > kMostSlots) memory.slots = kMostSlots;
  if (memory.slots < 2) memory.slots = 0;
  return memory;
}

// Rows of the tiles in which [rows, k] activations meet `column_tiles` tiles of weights.
uint32_t mmq_tile_rows(Packing packing, MmqActivations activations, uint32_t rows, uint32_t column_tiles,
                       uint32_t sm_count);

}  // namespace carat::cuda
