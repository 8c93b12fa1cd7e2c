#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemv/activation.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

inline constexpr uint32_t kMaxExperts = 256;
inline constexpr uint32_t kMaxExpertsUsed = 16;

// docs/gemma4.md 3.6: softmax over all experts, the `used` most probable, weights renormalised over them and multiplied
// by the expert's output scale. logits [rows, experts]; ids, weights [rows, used]. Equal probabilities: lower expert
// first.
void moe_route(const float* logits, const float* expert_scale, uint32_t rows, uint32_t experts, uint32_t used,
               uint32_t* ids, float* weights, const LaunchConfig& launch);

// --- decode: up to 8 rows, each expert of each row on its own -------------------------------------------------------
// acts row (r * used + s) = gelu(gate x) * (up x) of expert ids[r][s] for activation row r, quantised. gate and up hold
// experts * F rows; in a fused tensor expert e's gate rows start at e * stride and its up rows at e * stride +
// up_offset.
struct ExpertRows {
  PackedView weights;
  uint32_t stride;  // rows of one expert in this tensor
  uint32_t offset;  // first row within the expert
};
void moe_gate_up(const ExpertRows& gate, const ExpertRows& up, uint32_t F, const QuantisedRows& x, const uint32_t* ids,
                 uint32_t rows, uint32_t used, const QuantisedRows& acts, const LaunchConfig& launch);
// out[r] = sum over s of weights[r][s] * down(ids[r][s]) acts[r * used + s]; [rows, d] fp32.
void moe_down(const PackedView& down, uint32_t d, const QuantisedRows& acts, const uint32_t* ids, const float* weights,
              uint32_t rows, uint32_t used, float* out, const LaunchConfig& launch);

// --- prompt chunks: rows sorted by expert ---------------------------------------------------------------------------
// offsets [experts + 1]: where each expert's rows start in sorted order; source [rows * used]: the activation row of
// each sorted row; place [rows, used]: where each (row, slot) went. Rows of an expert keep their order.
void moe_sort(const uint32_t* ids, uint32_t rows, uint32_t used, uint32_t experts, uint32_t* offsets, uint32_t* source,
              uint32_t* place, const LaunchConfig& launch);
// out[r] = sum over s of weights[r][s] * sorted[place[r][s]]; sorted [rows * used, d] bf16, out [rows, d] bf16, d a
// multiple of 8.
void moe_combine(const __nv_bfloat16* sorted, const uint32_t* place, const float* weights, uint32_t rows, uint32_t used,
                 uint32_t d, __nv_bfloat16* out, const LaunchConfig& launch);
// out[i] = a[source[i]] w[expert of i]^T for all sorted rows i: bf16 tensor-core product over ragged groups.
// a: [*, k]; source may be null (a is already sorted); w: [experts, n, k]; out: [total, n]. k a multiple of 8.
void grouped_gemm(const __nv_bfloat16* a, const uint32_t* source, const __nv_bfloat16* w, const uint32_t* offsets,
                  uint32_t experts, uint32_t total, uint32_t n, uint32_t k, __nv_bfloat16* out,
                  const LaunchConfig& launch);

}  // namespace carat::cuda
