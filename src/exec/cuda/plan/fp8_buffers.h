#pragma once

#include <algorithm>

#include "exec/cuda/kernels/gemm/fp8.h"
#include "exec/cuda/plan/buffers.h"

namespace carat::cuda {

// Activations of the e4m3 product that comes next in a prompt chunk: [rows, widest input] and a scale for each row.
// Each is read before the next is made, so one serves all.
struct Fp8Buffers {
  Fp8Rows rows;
  void carve(Carver& carver, const Widths& w, uint32_t row_count) {
    rows.values = carver.take<uint8_t>(uint64_t{row_count} * std::max({w.d, w.q, w.F}));
    rows.scales = carver.take<float>(row_count);
  }
};

}  // namespace carat::cuda
