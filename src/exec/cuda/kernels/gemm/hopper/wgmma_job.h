#pragma once

// What wgmma_gemm hands to its kernels.
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_tiles.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

inline constexpr int kWgmmaThreads = 384;

struct WgmmaJobPart {
  CUtensorMap quants;  // boxes of 64 rows x 128 bytes, swizzled
  CUtensorMap scales;  // boxes of 64 rows x 16 bytes; unused for kBF16
  uint32_t rows, stride, offset;
  uint32_t first_tile, column;  // of the parts side by side
};

struct WgmmaJob {
  CUtensorMap activations;  // boxes of 32 rows x 64 columns, swizzled; unused with `source`
  WgmmaJobPart part[kWgmmaMaxParts];
  uint32_t parts, row_tiles;  // row tiles of all parts of a group
  uint32_t box_columns;       // of `quants`: 128 bytes as elements
  bool geglu;
  const __nv_bfloat16* a;
  const uint32_t* source;
  const uint32_t* offsets;
  uint32_t groups, total;
  uint32_t k, blocks;  // columns; blocks of 64
  __nv_bfloat16* out;
  uint32_t out_columns;
};

// Whether the kernels' code for this GPU was compiled for sm_90a, and not from portable code at load.
bool wgmma_kernels_compiled();

// One per packing, each in a file of its own.
template <Packing kPacking>
void launch_wgmma_gemm(const WgmmaJob& job, uint32_t width, uint32_t blocks, const LaunchConfig& launch);

}  // namespace carat::cuda
