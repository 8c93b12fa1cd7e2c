#pragma once

// What the warpgroup product reads and how it cuts its work: pure functions of sizes, for host and device alike,
// without anything of CUDA.
#include <cstdint>

#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// A tile is 128 weight rows by `width` rows of activations. Weights are the tall side: every weight that is read (and
// dequantised) serves the whole width, and the width follows the number of rows in fine steps.
inline constexpr uint32_t kWgmmaTileRows = 128;
inline constexpr uint32_t kWgmmaWidths[] = {32, 64, 96, 128, 160, 192, 256};
inline constexpr uint32_t kWgmmaWidthUnit = 32;
inline constexpr uint32_t kWgmmaMaxWidth = 256;
inline constexpr uint32_t kWgmmaMaxParts = 3;
inline constexpr uint32_t kWgmmaMaxGroups = 256;

// Packings the kernels read: quantised ones that they dequantise on the way into the registers, and bf16 itself.
constexpr bool wgmma_packing(Packing packing) {
  return packing == Packing::kQ8 || packing == Packing::kQ4 || packing == Packing::kQ4K || packing == Packing::kBF16;
}
// Whether a matrix (of each group) can be a part: copies and stores are 16 bytes wide.
constexpr bool wgmma_reads(Packing packing, uint64_t rows, uint64_t cols) {
  return wgmma_packing(packing) && rows > 0 && rows % 8 == 0 && cols > 0 && cols % 8 == 0;
}

constexpr uint32_t wgmma_ceil(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// Width for groups whose sizes only the device knows. Each of `total` rows falls into one of the groups; when they fall
// at random, nearly no group is larger than the mean and two deviations. A group of that size gets as few tiles as
// possible, so that its weights are read and dequantised as seldom as possible, and those no wider than needed.
constexpr uint32_t wgmma_grouped_width(uint32_t total, uint32_t groups) {
  const uint32_t mean = wgmma_ceil(total, groups);
  uint32_t root = 0;
  while ((root + 1) * (root + 1) <= mean) ++root;
  const uint32_t rows = mean + 2 * root;
  const uint32_t each = wgmma_ceil(rows, wgmma_ceil(rows, kWgmmaMaxWidth));
  for (const uint32_t width : kWgmmaWidths) {
    if (width >= each) return width;
  }
  return kWgmmaMaxWidth;
}

// Width for one group: the multiprocessors take tiles in rounds, and the last round should not be nearly empty. A tile
// costs its width and what does not depend on it: about 24 rows' worth, and 72 more where weights are dequantised
// (measured on an H200).
constexpr uint32_t wgmma_dense_width(uint32_t rows, uint32_t row_tiles, uint32_t sm_count, bool dequantised) {
  const uint32_t fixed = dequantised ? 96 : 24;
  uint32_t best = kWgmmaMaxWidth;
  uint64_t best_cost = UINT64_MAX;
  for (const uint32_t width : kWgmmaWidths) {
    const uint64_t tiles = uint64_t{row_tiles} * wgmma_ceil(rows, width);
    const uint64_t cost = (tiles + sm_count - 1) / sm_count * (width + fixed);
    if (cost <= best_cost) {  // equally good: the wider, which reads weights less often
      best_cost = cost;
      best = width;
    }
    if (width >= rows) break;  // wider ones would only be emptier
  }
  return best;
}

// The most tiles `total` rows in `groups` groups can have, whatever the sizes of the groups.
constexpr uint64_t wgmma_most_tiles(uint32_t total, uint32_t groups, uint32_t row_tiles, uint32_t width) {
  const uint32_t used = groups < total ? groups : total;
  return (uint64_t{total} / width + used) * row_tiles;
}

}  // namespace carat::cuda
