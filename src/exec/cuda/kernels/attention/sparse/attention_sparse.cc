#include "exec/cuda/kernels/attention/sparse/attention_sparse.h"

#include "base/error.h"
#include "exec/cuda/kernels/attention/sparse/attention_sparse_launch.h"

namespace carat::cuda {

void attention_prefill_sparse(const AttentionShape& shape, const SparseAttention& sparse, const __half* q,
                              const KvView& kv, const Segment* tiles, uint32_t tile_count, uint32_t sequence,
                              uint32_t end, const SparseScratch& scratch, __nv_bfloat16* out,
                              const LaunchConfig& launch) {
  check_attention_shape(shape);
  CARAT_CHECK(shape.window == 0 && shape.hd > 256 && end <= kv.cells && kv.cells % kSparseBlock == 0);
  CARAT_CHECK(!kv.quantised() || shape.hd % kKvScaleBlock == 0);
  CARAT_CHECK(scratch.list_length >= sparse_most_blocks(sparse, end) && end / kSparseBlock <= scratch.pooled_blocks);
  const SparseArguments arguments{{shape, q, kv, tiles, tile_count, out}, sparse, scratch};
  launch_pool_keys(shape, kv, sequence, end / kSparseBlock, scratch, launch);
  launch_select_blocks(arguments, launch);
  launch_sparse_prefill(arguments, launch);
}

}  // namespace carat::cuda
