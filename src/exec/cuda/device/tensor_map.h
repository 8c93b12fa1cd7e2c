#pragma once

#include <cuda.h>

#include <cstdint>

namespace carat::cuda {

// Rows of `row_elements` elements, `pitch_bytes` apart, that the copy engine (TMA, sm_90) brings to shared memory in
// boxes of `box_rows` x `box_elements`.
struct TensorMapShape {
  CUtensorMapDataType type;
  uint64_t row_elements, rows, pitch_bytes;
  uint32_t box_elements, box_rows;
  bool swizzled;  // 16-byte pieces of a row of 128 bytes permuted by XOR with the row's number modulo 8
};

// Throws kDevice where the driver has no such maps or refuses this one.
CUtensorMap make_tensor_map(const void* base, const TensorMapShape& shape);

}  // namespace carat::cuda
