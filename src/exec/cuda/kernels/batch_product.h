#pragma once

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/batch_rows.h"
#include "exec/cuda/kernels/matvec.h"

namespace carat::cuda {

// As quantise_residual_norm(), with fp16 operands as the result.
// clear: [rows], set to zero; may be null (the `largest` of the product that follows).
void batch_residual_norm(const ResidualNorm& residual, uint32_t rows, const BatchRows& out, uint32_t* clear,
                         const Launch& how);

// out = W x for up to three matrices over the same rows of activations, as a MatvecJob, but for up to 64 rows at once
// on the tensor cores.
struct BatchJob {
  uint32_t rows = 1;  // 1..64
  uint32_t parts = 1;
  MatvecPart part[kMatvecParts];
  // The activations: operands as batch_residual_norm() leaves them, or (fragments is null) fp32 rows that each block
  // rounds itself.
  BatchRows input{};
  const float* floats = nullptr;               // [rows, floats_leading]
  uint32_t floats_leading = 0;                 // a multiple of 4
  const uint32_t* floats_largest = nullptr;    // [rows] bits of the largest |value|; null: all are below 2^15
  MatvecOutput output = MatvecOutput::kStore;  // kGeglu stores fp32 rows at part[0].out
  uint32_t* largest = nullptr;                 // kGeglu, kGeluTimes: [rows], raised to the bits of the largest |result|
  const float* factors = nullptr;              // kGeluTimes
  uint32_t factors_leading = 0;
  float cap = 0.0f;  // kSoftcap; 0: none
  uint32_t* non_finite = nullptr;
};

// gelu(gate) * up of [rows, 2 F] (gate first) as fp32 [rows, leading], for files whose gate and up matrices differ in
// format. largest: as in a BatchJob.
void batch_geglu(const float* gate_up, uint32_t rows, uint32_t F, float* out, uint32_t leading, uint32_t* largest,
                 const Launch& how);

// Where blocks that share the columns of a weight row put their sums together.
struct BatchScratch {
  float* partial;      // [floats]
  uint64_t floats;     // how many there is room for
  uint32_t* counters;  // [counter_count] zeros (left at zero again)
  uint32_t counter_count;
};

// How the work of a job is cut: `splits` ranges of columns times `blocks` blocks that deal the weight rows out.
struct BatchCut {
  uint32_t splits = 1;
  uint32_t blocks = 1;                                         // of one split
  uint32_t tiles = 1;                                          // of weight rows
  uint32_t first[kMatvecParts] = {0, UINT32_MAX, UINT32_MAX};  // the first tile of each part
};

// Parts of different packings take a launch each; so do halves of the rows where one launch cannot hold them.
void batch_product(const BatchJob& job, const BatchScratch& scratch, uint32_t sm_count, uint32_t shared_memory,
                   const Launch& how);

}  // namespace carat::cuda
