#pragma once

// Prompt attention by warpgroup products (sm_90a): what attention.h says of attention_prefill, for caches in fp16, a
// head dimension of 512 and no window.
#include <cuda.h>

#include "exec/cuda/kernels/attention_launch.h"

namespace carat::cuda {

inline constexpr uint32_t kWgmmaAttentionRows = 64;  // of a tile: queries times the query heads of a KV head
inline constexpr uint32_t kWgmmaAttentionHd = 512;

struct WgmmaAttentionJob {
  CUtensorMap keys;    // the cache as rows of hd: boxes of 64 columns x 64 keys, swizzled
  CUtensorMap values;  // 64 columns x 32 keys
  PrefillArguments a;
};

bool wgmma_attention_supports(const AttentionShape& shape, const KvView& kv);

// The tiles are those of attention_prefill. Only where wgmma_available().
void attention_prefill_wgmma(const PrefillArguments& arguments, const Launch& how);

}  // namespace carat::cuda
