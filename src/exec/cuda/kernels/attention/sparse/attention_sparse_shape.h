#pragma once

#include <algorithm>
#include <cstdint>

#include "exec/cuda/kernels/attention/attention_shape.h"

namespace carat::cuda {

// Block-sparse attention of long prompts, without anything of CUDA. Keys are chosen in blocks of this many.
inline constexpr uint32_t kSparseBlock = 64;

// Which key blocks a tile of query rows visits: the first ones, which models use as a place for attention that belongs
// nowhere; the ones just before the tile; and of those between the best by an estimate.
struct SparseAttention {
  uint32_t from = 16384;  // tiles that end before this position see everything
  uint32_t first = 1;     // blocks
  uint32_t recent = 16;   // blocks before the one the tile begins in
  uint32_t least = 64;    // best blocks at least,
  uint32_t divisor = 8;   // and at least one of so many that are visible
};

// Whether there are kernels for it, and the shared memory a block of them needs for prompts up to `context`.
bool sparse_attention_supports(const AttentionShape& shape);
uint32_t sparse_attention_shared_memory(uint32_t context);

// Blocks that any tile of a context's prompt visits at most.
uint32_t sparse_most_blocks(const SparseAttention& sparse, uint32_t context);

// Best blocks of a tile that sees `blocks` in all.
constexpr uint32_t sparse_best_blocks(const SparseAttention& sparse, uint32_t blocks) {
  return std::max(sparse.least, blocks / sparse.divisor);
}

}  // namespace carat::cuda
