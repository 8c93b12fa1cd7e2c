#pragma once

#include "exec/cuda/kernels/mmq/mmq.h"

namespace carat::cuda {

// What a kernel gets: the parts of a job told apart by their first column tile.
struct MmqProduct {
  MmqRows x;
  PackedView weights[kMmqParts];
  uint32_t column[kMmqParts];      // of the result
  uint32_t first_tile[kMmqParts];  // of the launch
  uint32_t parts, rows, chunks, leading, row_tiles, column_tiles;
  __nv_bfloat16* out;
  float* out_float;
};

// Instantiated for each packing in a file of its own.
template <Packing packing>
void launch_mmq_packing(const MmqProduct& job, uint32_t tile_rows, const LaunchConfig& launch);

}  // namespace carat::cuda
