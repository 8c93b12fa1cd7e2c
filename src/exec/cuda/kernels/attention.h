#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/attention_shape.h"

namespace carat::cuda {

// The cache of one owner layer: [sequence][Hkv][slots][hd], K and V alike. Position p lives in slot p % slots; slots is
// a multiple of 64, so 64 positions aligned to 64 are contiguous slots.
struct KvView {
  // fp16; null where the cache is q8_0
  __half* k = nullptr;
  __half* v = nullptr;
  uint32_t slots = 0;
  // q8_0: int8 values, and their scales [sequence][Hkv][slots][kv_scale_columns(hd)], one for 32 values; scales beyond
  // hd / 32 are zero.
  int8_t* k_quants = nullptr;
  int8_t* v_quants = nullptr;
  __half* k_scales = nullptr;
  __half* v_scales = nullptr;

  bool quantised() const { return k_quants != nullptr; }
};

// Query rows are fp16 [rows, H, hd], normalised and rotated; keys and values of all rows are already in the cache.
// Scale is 1; scores and softmax in fp32; a query at position p sees keys p0 <= p with p - p0 < window.

// Prompt chunks: bf16 output [rows, H * hd]. `tiles` are segments of at most attention_tile_rows(shape) rows each
// (device memory).
uint32_t attention_tile_rows(const AttentionShape& shape, uint32_t shared_memory_limit);
void attention_prefill(const AttentionShape& shape, const __half* q, const KvView& kv, const Segment* tiles,
                       uint32_t tile_count, __nv_bfloat16* out, uint32_t shared_memory_limit, const Launch& how);

// Decode: one query per row, its position and sequence read from device memory, so that a captured graph needs no
// parameter update. The keys are split over `splits` blocks per KV head and row; the last block to finish combines.
// fp32 or bf16 output [rows, H * hd]. partial: fp32 scratch of attention_decode_scratch() elements; counters: rows *
// Hkv zeros (left at zero again).
void attention_decode(const AttentionShape& shape, const __half* q, const KvView& kv, const uint32_t* positions,
                      const uint32_t* sequences, uint32_t rows, float* out, uint32_t splits, float* partial,
                      uint32_t* counters, const Launch& how);
void attention_decode(const AttentionShape& shape, const __half* q, const KvView& kv, const uint32_t* positions,
                      const uint32_t* sequences, uint32_t rows, __nv_bfloat16* out, uint32_t splits, float* partial,
                      uint32_t* counters, const Launch& how);

}  // namespace carat::cuda
