#pragma once

#include <cstdint>

#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// Activations rounded to 15 bits per 16 values: v = scale * (128 h + l) with int8 h and l, so that two integer dot
// products against the weights are as exact as 16-bit activations. Words lie in the order the packed weights are read:
// of the 128 words of a step the first 64 hold h and the others l; word (i * 8 + b) * 4 + w of each covers columns 32 b
// + 16 i + 4 w ... + 3. The sums turn offsets and minima of the weights into one multiplication.
struct alignas(16) BlockMeta {
  float scale[2];  // of columns 0..15 and 16..31 of the block
  int32_t sum[2];  // of 128 h + l over the same columns
};

inline constexpr uint32_t kStepWords = 128;

// Rows of activations in device memory as products read them. Columns beyond the true width are zero.
struct QuantisedRows {
  uint32_t* words;  // [rows][steps * kStepWords]
  BlockMeta* meta;  // [rows][steps * 8]
  float* values;    // [rows][steps * 256] the same rows unrounded, for float weights; may be null
};

// v = (x + delta') * scale with delta' = rms(delta) * delta_norm, then n = rms(v) * next_norm: the step between any two
// matrix products of a layer. Null pointers leave a part out: no delta, no norm at the end.
// In a mixture-of-experts layer delta is itself rms(dense) * dense_norm + rms(experts) * experts_norm.
// Delta is float where a matrix-vector product made the deltas, bf16 where a matrix product did.
template <typename Delta>
struct ResidualNormOf {
  const float* x = nullptr;             // [rows, d]
  const Delta* delta = nullptr;         // [rows, d]
  const float* delta_norm = nullptr;    // [d]
  const float* dense_norm = nullptr;    // [d]; set: delta is the dense branch and `experts` joins it
  const Delta* experts = nullptr;       // [rows, d]
  const float* experts_norm = nullptr;  // [d]
  float scale = 1.0f;
  float* x_out = nullptr;            // [rows, d], not the same memory as x; may be null
  const float* next_norm = nullptr;  // [d]
  float eps = 1e-6f;
  uint32_t d = 0;
};
using ResidualNorm = ResidualNormOf<float>;

}  // namespace carat::cuda
