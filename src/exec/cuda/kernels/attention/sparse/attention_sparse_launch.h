#pragma once

// The kernels of block-sparse attention, for attention_sparse.cc.
#include "exec/cuda/kernels/attention/attention_launch.h"
#include "exec/cuda/kernels/attention/sparse/attention_sparse.h"

namespace carat::cuda {

struct SparseArguments {
  PrefillArguments prefill;
  SparseAttention sparse;
  SparseScratch scratch;
};

// Mean keys of blocks [0, blocks) of one sequence.
void launch_pool_keys(const AttentionShape& shape, const KvView& kv, uint32_t sequence, uint32_t blocks,
                      const SparseScratch& scratch, const LaunchConfig& launch);
void launch_select_blocks(const SparseArguments& arguments, const LaunchConfig& launch);
void launch_sparse_prefill(const SparseArguments& arguments, const LaunchConfig& launch);

}  // namespace carat::cuda
