#pragma once

// The instantiated attention kernels, one translation unit per head dimension, for the launchers in attention.cc.
#include "exec/cuda/kernels/attention/attention.h"

namespace carat::cuda {

struct PrefillArguments {
  AttentionShape shape;
  const __half* q;  // [rows, H, hd]
  KvView kv;
  const Segment* tiles;
  uint32_t tile_count;
  __nv_bfloat16* out;  // [rows, H, hd]
};

// The number is the largest head dimension, _q8 is for caches in q8_0; `wide` picks the tile for more than 99 KB of
// shared memory.
void launch_prefill_128(const PrefillArguments& arguments, const LaunchConfig& launch);
void launch_prefill_256(const PrefillArguments& arguments, bool wide, const LaunchConfig& launch);
void launch_prefill_512(const PrefillArguments& arguments, bool wide, const LaunchConfig& launch);
void launch_prefill_128_q8(const PrefillArguments& arguments, const LaunchConfig& launch);
void launch_prefill_256_q8(const PrefillArguments& arguments, bool wide, const LaunchConfig& launch);
void launch_prefill_512_q8(const PrefillArguments& arguments, bool wide, const LaunchConfig& launch);

struct DecodeArguments {
  AttentionShape shape;
  const __half* q;  // [rows, H, hd]
  KvView kv;
  const uint32_t* positions;  // [rows]
  const uint32_t* sequences;  // [rows]
  float* out;                 // [rows, H, hd]
  __nv_bfloat16* out_bf16;    // the same; one of them is null
  float* outputs;             // [rows, H, splits, hd], scratch
  float2* stats;              // [rows, H, splits], scratch
  uint32_t* counters;         // [rows, Hkv]
};

void launch_decode_128(const DecodeArguments& arguments, uint32_t rows, uint32_t splits, const LaunchConfig& launch);
void launch_decode_256(const DecodeArguments& arguments, uint32_t rows, uint32_t splits, const LaunchConfig& launch);
void launch_decode_512(const DecodeArguments& arguments, uint32_t rows, uint32_t splits, const LaunchConfig& launch);
void launch_decode_128_q8(const DecodeArguments& arguments, uint32_t rows, uint32_t splits, const LaunchConfig& launch);
void launch_decode_256_q8(const DecodeArguments& arguments, uint32_t rows, uint32_t splits, const LaunchConfig& launch);
void launch_decode_512_q8(const DecodeArguments& arguments, uint32_t rows, uint32_t splits, const LaunchConfig& launch);

}  // namespace carat::cuda
