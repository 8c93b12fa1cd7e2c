#pragma once

#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// A cluster of blocks takes 8 rows through the end of a layer; no warp has more than one tile of 16 weight rows times
// 256 columns of either product, so that its weights are in registers before the rows are known.
inline constexpr uint32_t kPleBlocks = 8;  // of a cluster, and rows it takes
inline constexpr uint32_t kPleWarps = 20;
inline constexpr uint32_t kPleMostColumns = kPleBlocks * kPleWarps * 16;  // d
inline constexpr uint32_t kPleMostInner = kStep;                          // P

constexpr bool ple_step_widths(uint64_t d, uint64_t P) {
  const bool gate_fits = (P / 16 / kPleBlocks) * (d / kStep) <= kPleWarps;
  return d > 0 && d % kStep == 0 && d <= kPleMostColumns && P > 0 && P % (16 * kPleBlocks) == 0 && P <= kPleMostInner &&
         gate_fits;
}
// Matrices as floats would not fit the registers.
constexpr bool ple_step_reads(const PackedView& gate, const PackedView& proj) {
  return gate.packing == proj.packing && !is_float_packing(gate.packing) && gate.cols == proj.rows &&
         gate.rows == proj.cols && ple_step_widths(gate.cols, gate.rows);
}

}  // namespace carat::cuda
