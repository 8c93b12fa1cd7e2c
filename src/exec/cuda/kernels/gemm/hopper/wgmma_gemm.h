#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <vector>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_tiles.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// Rows of one matrix that a product multiplies with: of each group (expert) e, rows [e * stride + offset, + rows) of
// `weights`. One group: stride and offset 0.
struct WgmmaPart {
  PackedView weights;
  uint32_t rows = 0;
  uint32_t stride = 0, offset = 0;
  uint32_t pitch = 0;  // kBF16: elements from one row to the next; 0: as packed.h has it
};

// out[i, ...] = a[source[i]] w^T, rows i grouped by `offsets` and every group with weights of its own. The results of
// the parts stand side by side; with geglu the two parts are gate and up and the result is gelu(gate) * up.
struct WgmmaGemm {
  std::vector<WgmmaPart> parts;       // up to three; one packing (wgmma_packing), one number of columns
  bool geglu = false;                 // two parts of the same number of rows
  const __nv_bfloat16* a = nullptr;   // [*, k]
  const uint32_t* source = nullptr;   // [total] in device memory, or null: row i of a
  uint32_t source_rows = 0;           // rows of a; used without `source` only
  const uint32_t* offsets = nullptr;  // [groups + 1] in device memory; null: one group
  uint32_t groups = 1, total = 0;
  __nv_bfloat16* out = nullptr;  // [total, leading]
  uint32_t leading = 0;          // 0: the columns of this product, the sum of the parts' rows or those of one (geglu)
};

// Whether the product can be run: packings and shapes (rows and columns in multiples of 8), not the card.
bool wgmma_can(const WgmmaGemm& product);
// Whether this build has the kernels for the current GPU: they exist for sm_90a alone.
bool wgmma_available();
// Only where both are true. `width` is one of kWgmmaWidths; 0: the best for the sizes.
void wgmma_gemm(const WgmmaGemm& product, uint32_t sm_count, const LaunchConfig& launch, uint32_t width = 0);

// A plain bf16 matrix, [groups, rows, cols] without gaps, as weights.
WgmmaPart wgmma_bf16(const __nv_bfloat16* values, uint32_t groups, uint32_t rows, uint32_t cols);

}  // namespace carat::cuda
