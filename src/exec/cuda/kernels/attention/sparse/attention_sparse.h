#pragma once

#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/attention/sparse/attention_sparse_shape.h"

namespace carat::cuda {

// Device memory that one call needs.
struct SparseScratch {
  __half* pooled;    // [Hkv][pooled_blocks][hd]: the mean key of each block
  uint16_t* blocks;  // [tiles][Hkv][list_length]
  uint32_t* counts;  // [tiles][Hkv]
  uint32_t pooled_blocks;
  uint32_t list_length;  // sparse_most_blocks()
};

// Attention of prompt chunks as attention_prefill(), but the tiles of one sequence only, in layers without a window and
// over chosen key blocks (SparseAttention). `end`: one past the last position of the tiles.
//
// The estimate: a row's scores with the mean keys of all blocks, made probabilities; a block's worth is their sum over
// the rows of the tile. Deterministic; blocks of equal worth are taken in order.
void attention_prefill_sparse(const AttentionShape& shape, const SparseAttention& sparse, const __half* q,
                              const KvView& kv, const Segment* tiles, uint32_t tile_count, uint32_t sequence,
                              uint32_t end, const SparseScratch& scratch, __nv_bfloat16* out,
                              const LaunchConfig& launch);

}  // namespace carat::cuda
