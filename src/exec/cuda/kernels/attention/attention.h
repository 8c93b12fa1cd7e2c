#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/attention/attention_shape.h"
#include "exec/cuda/kernels/attention/kv_view.h"

namespace carat::cuda {

// Query rows are fp16 [rows, H, hd], normalised and rotated; keys and values of all rows are already in the cache.
// Scale is 1; scores and softmax in fp32; a query at position p sees keys p0 <= p with p - p0 < window.

// Prompt chunks: bf16 output [rows, H * hd]. `tiles` are segments of at most attention_tile_rows(shape) rows each
// (device memory).
uint32_t attention_tile_rows(const AttentionShape& shape, uint32_t shared_memory_limit);
void attention_prefill(const AttentionShape& shape, const __half* q, const KvView& kv, const Segment* tiles,
                       uint32_t tile_count, __nv_bfloat16* out, uint32_t shared_memory_limit,
                       const LaunchConfig& launch);

// Decode: one query per row, its position and sequence read from device memory, so that a captured graph needs no
// parameter update. The keys are split over `splits` blocks per KV head and row; the last block to finish combines.
// fp32 or bf16 output [rows, H * hd]. partial: fp32 scratch of attention_decode_scratch() elements; counters: rows *
// Hkv zeros (left at zero again).
void attention_decode(const AttentionShape& shape, const __half* q, const KvView& kv, const uint32_t* positions,
                      const uint32_t* sequences, uint32_t rows, float* out, uint32_t splits, float* partial,
                      uint32_t* counters, const LaunchConfig& launch);
void attention_decode(const AttentionShape& shape, const __half* q, const KvView& kv, const uint32_t* positions,
                      const uint32_t* sequences, uint32_t rows, __nv_bfloat16* out, uint32_t splits, float* partial,
                      uint32_t* counters, const LaunchConfig& launch);

}  // namespace carat::cuda
