#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// gelu(gate) * up of [rows, 2 F] (gate first) into [rows, F].
void geglu(const __nv_bfloat16* gate_up, uint32_t rows, uint32_t F, __nv_bfloat16* out, const LaunchConfig& launch);
// gelu(gate) * ple of the layer: gate [rows, P], factors [rows, leading] fp32 starting at the layer's slice.
void gelu_times(const __nv_bfloat16* gate, const float* factors, uint32_t leading, uint32_t rows, uint32_t P,
                __nv_bfloat16* out, const LaunchConfig& launch);

// Per-layer embeddings (docs/gemma4.md 3.2), gather included:
// out = (rms(projection * d^-1/2) * norm + table[token] * sqrt(P)) / sqrt(2), per slice of P values (one slice a
// layer). projection and out: [rows, slices * P]; table: the packed [V, layers * P] matrix, of which the first slices
// are read.
struct PleJob {
  PackedView table;
  const int32_t* tokens = nullptr;  // [rows]
  const float* norm = nullptr;      // [P]
  uint32_t slices = 0;
  uint32_t P = 0;
  float projection_scale = 1.0f;  // d^-1/2
  float table_scale = 1.0f;       // sqrt(P)
  float eps = 1e-6f;
};
void combine_ple(const PleJob& job, const __nv_bfloat16* projection, uint32_t rows, float* out,
                 const LaunchConfig& launch);
void combine_ple(const PleJob& job, const float* projection, uint32_t rows, float* out, const LaunchConfig& launch);

}  // namespace carat::cuda
