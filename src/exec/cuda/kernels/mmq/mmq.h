#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemv/activation.h"
#include "exec/cuda/kernels/mmq/mmq_shape.h"

namespace carat::cuda {

// Rounded activations of prompt chunks in device memory. A row holds whole chunks of 128 columns, zero beyond the true
// width; a chunk is 128 bytes in column order, for kInt16 the high parts followed by the low ones. Scales have at most
// 15 significant bits: mmq.cuh says why.
struct MmqRows {
  MmqActivations activations = MmqActivations::kInt16;
  int8_t* quants = nullptr;  // [rows][chunks][bytes a value][128]
  float* scales = nullptr;   // [rows / 16][chunks][4 blocks][16], of row r at mmq_scale_place(r)
  float* sums = nullptr;     // of the rounded values, likewise
};

// One matrix of a launch and the first of its columns in the result.
struct MmqPart {
  PackedView weights;
  uint32_t column = 0;
};

// out[r][column + o] = sum over c of x[r][c] weights[o][c], for all parts. They have the same packing and width.
struct MmqJob {
  MmqRows x;
  MmqPart part[kMmqParts] = {};
  uint32_t parts = 0;
  uint32_t rows = 0;
  uint32_t leading = 0;  // columns of the result
  // One of the two.
  __nv_bfloat16* out = nullptr;
  float* out_float = nullptr;
};

// `tile_rows` as mmq_tile_rows() has it, or 0 for that.
void mmq(const MmqJob& job, uint32_t sm_count, const LaunchConfig& launch, uint32_t tile_rows = 0);

// What makes the rounded activations. All columns of a row are written, the zeros beyond its width included.
// The residual step of norm.h: its result rounded, straight from fp32.
void residual_norm_mmq(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, const MmqRows& out,
                       const LaunchConfig& launch);
// gelu(gate) * up of [rows, 2 F] (gate first).
void geglu_mmq(const __nv_bfloat16* gate_up, uint32_t rows, uint32_t F, const MmqRows& out, const LaunchConfig& launch);
// gelu(gate) * factors: gate [rows, P], factors [rows, leading] fp32.
void gelu_times_mmq(const __nv_bfloat16* gate, const float* factors, uint32_t leading, uint32_t rows, uint32_t P,
                    const MmqRows& out, const LaunchConfig& launch);
// Values that no kernel above makes: attention's results.
void quantise_mmq(const __nv_bfloat16* values, uint32_t rows, uint32_t cols, const MmqRows& out,
                  const LaunchConfig& launch);

}  // namespace carat::cuda
