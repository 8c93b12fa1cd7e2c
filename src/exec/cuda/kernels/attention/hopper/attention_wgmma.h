#pragma once

// Prompt attention by warpgroup products (sm_90a): what attention.h says of attention_prefill, where
// warpgroup_attention_supports().
#include <cuda.h>

#include "exec/cuda/kernels/attention/attention_launch.h"

namespace carat::cuda {

struct WgmmaAttentionJob {
  CUtensorMap keys, values;  // the cache as rows of hd: boxes of 64 columns x the kernel's number of keys, swizzled
  PrefillArguments a;
};

// Tiles are segments of at most this many rows.
uint32_t warpgroup_attention_tile_rows(const AttentionShape& shape);

// Only where wgmma_available().
void attention_prefill_wgmma(const PrefillArguments& arguments, const LaunchConfig& launch);

// One per head dimension, each in a file of its own.
void launch_prefill_256_wgmma(const PrefillArguments& arguments, const LaunchConfig& launch);
void launch_prefill_512_wgmma(const PrefillArguments& arguments, const LaunchConfig& launch);

// The cache as boxes of `box_keys` keys.
CUtensorMap wgmma_cache_map(const __half* base, uint32_t hd, uint32_t box_keys);

}  // namespace carat::cuda
