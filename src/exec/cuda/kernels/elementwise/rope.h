#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/attention/attention.h"

namespace carat::cuda {

// cos and sin of every rotation angle of a row, computed once per pass and read by all layers of a kind:
// table[row * pairs + j] for pair j < pairs; pairs beyond the rotating ones are left out (their angle is zero).
// inverse_frequency: [pairs] theta^(-2 j / hd) / divisor, as doubles so that position * frequency keeps its accuracy up
// to the longest context.
void rope_table(const uint32_t* positions, uint32_t rows, const double* inverse_frequency, uint32_t pairs,
                float2* table, const LaunchConfig& launch);

// Head norms, rotation and cache write of one layer. In: [rows, (H + Hkv + Hkv) * hd] projections, q heads first, then
// k, then v; v_from_k: no v part, the raw k heads serve as v.
struct QkvPost {
  AttentionShape shape;
  bool v_from_k = false;
  bool only_q = false;   // the projections hold q only and the cache stays as it is
  bool only_kv = false;  // the projections hold k and v only
  float eps = 1e-6f;
  const float* q_norm = nullptr;  // [hd]
  const float* k_norm = nullptr;  // [hd]
  const float2* table = nullptr;  // [rows, pairs]
  uint32_t pairs = 0;
  const uint32_t* positions = nullptr;  // [rows]
  const uint32_t* sequences = nullptr;  // [rows]
  __half* q = nullptr;                  // [rows, H, hd]
  KvView kv{};                          // q8_0: hd is a multiple of kKvScaleBlock
};
void qkv_post(const QkvPost& job, const __nv_bfloat16* projections, uint32_t rows, const LaunchConfig& launch);
void qkv_post(const QkvPost& job, const float* projections, uint32_t rows, const LaunchConfig& launch);

}  // namespace carat::cuda
