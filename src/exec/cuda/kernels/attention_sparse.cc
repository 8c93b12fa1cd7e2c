#include "exec/cuda/kernels/attention_sparse.h"

#include "base/error.h"
#include "exec/cuda/kernels/attention_sparse_launch.h"

namespace carat::cuda {

void attention_prefill_sparse(const AttentionShape& shape, const SparseAttention& sparse, const __half* q,
                              const KvView& kv, const Segment* tiles, uint32_t tile_count, uint32_t sequence,
                              uint32_t end, const SparseScratch& scratch, __nv_bfloat16* out, const Launch& how) {
  check_attention_shape(shape);
  CARAT_CHECK(shape.window == 0 && shape.hd > 256 && end <= kv.slots && kv.slots % kSparseBlock == 0);
  CARAT_CHECK(!kv.quantised() || shape.hd % kKvScaleBlock == 0);
  CARAT_CHECK(scratch.list_length >= sparse_most_blocks(sparse, end) && end / kSparseBlock <= scratch.pooled_blocks);
  const SparseArguments arguments{{shape, q, kv, tiles, tile_count, out}, sparse, scratch};
  launch_pool_keys(shape, kv, sequence, end / kSparseBlock, scratch, how);
  launch_select_blocks(arguments, how);
  launch_sparse_prefill(arguments, how);
}

}  // namespace carat::cuda
