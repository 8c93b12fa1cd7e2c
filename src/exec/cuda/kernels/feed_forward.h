#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "exec/cuda/device/launch.h"

namespace carat::cuda {

// gelu(gate) * up of [rows, 2 F] (gate first) into [rows, F].
void geglu(const __nv_bfloat16* gate_up, uint32_t rows, uint32_t F, __nv_bfloat16* out, const Launch& how);
// gelu(gate) * ple of the layer: gate [rows, P], factors [rows, leading] fp32 starting at the layer's slice.
void gelu_times(const __nv_bfloat16* gate, const float* factors, uint32_t leading, uint32_t rows, uint32_t P,
                __nv_bfloat16* out, const Launch& how);

// Per-layer embeddings (spec 3.2): out = (rms(projection * d^-1/2) * norm + table * sqrt(P)) / sqrt(2), per slice of P.
// projection and out: [rows, slices * P]; table: [rows, slices * P] fp32, the gathered rows already times sqrt(P).
void combine_ple(const __nv_bfloat16* projection, const float* table, const float* norm, uint32_t rows, uint32_t slices,
                 uint32_t P, float scale, float eps, float* out, const Launch& how);
void combine_ple(const float* projection, const float* table, const float* norm, uint32_t rows, uint32_t slices,
                 uint32_t P, float scale, float eps, float* out, const Launch& how);

}  // namespace carat::cuda
