#pragma once

#include "exec/cuda/kernels/mmq/mmq_shape.h"
#include "exec/cuda/plan/buffers.h"

namespace carat::cuda {

// Rounded activations of the product that comes next in a prompt chunk: [rows, widest input]. Each is read before the
// next is made, so one serves all. What rows beyond a chunk's hold is read and never stored.
struct MmqBuffers {
  int8_t* quants = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  void carve(Carver& carver, const Widths& w, uint32_t row_count, MmqActivations activations);
};

}  // namespace carat::cuda
