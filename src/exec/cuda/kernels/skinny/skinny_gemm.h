#pragma once

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemv/gemv.h"
#include "exec/cuda/kernels/skinny/skinny_rows.h"

namespace carat::cuda {

// As quantise_residual_norm(), with fp16 operands as the result.
// clear: [rows], set to zero; may be null (the `largest` of the product that follows).
void skinny_residual_norm(const ResidualNorm& residual, uint32_t rows, const SkinnyRows& out, uint32_t* clear,
                          const LaunchConfig& launch);

// out = W x for up to three matrices over the same rows of activations, as a GemvJob, but for up to 64 rows at once
// on the tensor cores.
struct SkinnyJob {
  uint32_t rows = 1;  // 1..64
  uint32_t parts = 1;
  GemvPart part[kGemvParts];
  // The activations: operands as skinny_residual_norm() leaves them, or (fragments is null) fp32 rows that each block
  // rounds itself.
  SkinnyRows input{};
  const float* floats = nullptr;             // [rows, floats_leading]
  uint32_t floats_leading = 0;               // a multiple of 4
  const uint32_t* floats_largest = nullptr;  // [rows] bits of the largest |value|; null: all are below 2^15
  GemvOutput output = GemvOutput::kStore;    // kGeglu stores fp32 rows at part[0].out
  uint32_t* largest = nullptr;               // kGeglu, kGeluTimes: [rows], raised to the bits of the largest |result|
  const float* factors = nullptr;            // kGeluTimes
  uint32_t factors_leading = 0;
  float cap = 0.0f;                // kSoftcap; 0: none
  uint32_t* non_finite = nullptr;  // kSoftcap: [rows]
};

// gelu(gate) * up of [rows, 2 F] (gate first) as fp32 [rows, leading], for files whose gate and up matrices differ in
// format. largest: as in a SkinnyJob.
void skinny_geglu(const float* gate_up, uint32_t rows, uint32_t F, float* out, uint32_t leading, uint32_t* largest,
                  const LaunchConfig& launch);

// Where blocks that share the columns of a weight row put their sums together.
struct SkinnyScratch {
  float* partial;      // [floats]
  uint64_t floats;     // how many there is room for
  uint32_t* counters;  // [counter_count] zeros (left at zero again)
  uint32_t counter_count;
};

// How the work of a job is cut: `splits` ranges of columns times `blocks` blocks that deal the weight rows out.
struct SkinnyCut {
  uint32_t splits = 1;
  uint32_t blocks = 1;                                       // of one split
  uint32_t tiles = 1;                                        // of weight rows
  uint32_t first[kGemvParts] = {0, UINT32_MAX, UINT32_MAX};  // the first tile of each part
};

// Parts of different packings take a launch each; so do halves of the rows where one launch cannot hold them.
void skinny_gemm(const SkinnyJob& job, const SkinnyScratch& scratch, uint32_t sm_count, uint32_t shared_memory,
                 const LaunchConfig& launch);

}  // namespace carat::cuda
