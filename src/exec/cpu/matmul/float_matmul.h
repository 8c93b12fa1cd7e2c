#pragma once

// Matrix products with F32, F16 and BF16 weights and fp32 activations.
//
// Lanes run along the columns here: lane i sums columns i, i + kLanes, ... in order, and the lanes are added in a fixed
// tree at the end, so the result of one (weight row, activation row) does not depend on the rows beside it.
// Included after one of the simd_*.h headers.

#include "exec/cpu/kernel_table.h"

namespace carat::exec::cpu {
namespace {

struct WeightsF32 {
  static constexpr size_t kBytes = 4;
  static Floats load_lanes(const uint8_t* p) { return as_floats(load_ints(p)); }
};
struct WeightsF16 {
  static constexpr size_t kBytes = 2;
  static Floats load_lanes(const uint8_t* p) { return load_halves(p); }
};
struct WeightsBF16 {
  static constexpr size_t kBytes = 2;
  static Floats load_lanes(const uint8_t* p) { return load_bfloats(p); }
};

constexpr int kDotRows = 4;  // weight rows at a time: reduce_add4 sums four

inline const float* activation_row(const Activations& a, uint32_t row) {
  return a.values + size_t{a.index != nullptr ? a.index[row] : row} * a.stride;
}

// ahead: what is read next. With one activation row memory is what bounds it, and the rows are too short for the
// hardware to see the next ones coming.
template <typename Weights, int kRows>
inline void dot_rows(const uint8_t* const weights[kDotRows], const float* const rows[kRows], uint32_t cols,
                     const uint8_t* ahead, float sums[kRows][kDotRows]) {
  Floats lanes[kRows][kDotRows];
  for (int r = 0; r < kRows; ++r) {
    for (int w = 0; w < kDotRows; ++w) lanes[r][w] = broadcast(0.0f);
  }
  uint32_t col = 0;
  for (; cols - col >= kLanes; col += kLanes) {
    Floats loaded[kDotRows];
    for (int w = 0; w < kDotRows; ++w) loaded[w] = Weights::load_lanes(weights[w] + col * Weights::kBytes);
    for (int r = 0; r < kRows; ++r) {
      const Floats x = load(rows[r] + col);
      for (int w = 0; w < kDotRows; ++w) lanes[r][w] = multiply_add(loaded[w], x, lanes[r][w]);
    }
    if constexpr (kRows == 1) {
      constexpr size_t kStep = kDotRows * kLanes * Weights::kBytes;
      for (size_t line = 0; line < kStep; line += 64) __builtin_prefetch(ahead + line, 0, 2);
      ahead += kStep;
    }
  }
  if (col < cols) {  // the rest, padded with zeros
    const uint32_t rest = cols - col;
    for (int w = 0; w < kDotRows; ++w) {
      uint8_t padded_weights[kLanes * Weights::kBytes] = {};
      __builtin_memcpy(padded_weights, weights[w] + col * Weights::kBytes, rest * Weights::kBytes);
      const Floats loaded = Weights::load_lanes(padded_weights);
      for (int r = 0; r < kRows; ++r) {
        float padded[kLanes] = {};
        __builtin_memcpy(padded, rows[r] + col, rest * sizeof(float));
        lanes[r][w] = multiply_add(loaded, load(padded), lanes[r][w]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) reduce_add4(lanes[r][0], lanes[r][1], lanes[r][2], lanes[r][3], sums[r]);
}

template <typename Weights, int kRows>
inline void float_row_tile(const WeightTile& weights, const Activations& a, uint32_t row, float* out,
                           size_t out_stride) {
  const float* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = activation_row(a, row + static_cast<uint32_t>(r));
  for (uint32_t first = 0; first < kLanes; first += kDotRows) {
    if (first + kDotRows <= weights.skip) continue;
    const uint8_t* starts[kDotRows];
    for (uint32_t w = 0; w < kDotRows; ++w) starts[w] = weights.data + (first + w) * weights.row_bytes;
    float sums[kRows][kDotRows];
    dot_rows<Weights, kRows>(starts, rows, a.cols, starts[0] + kDotRows * weights.row_bytes, sums);
    for (int r = 0; r < kRows; ++r) {
      float* row_out = out + (size_t{row} + static_cast<size_t>(r)) * out_stride;
      for (uint32_t w = 0; w < kDotRows; ++w) {
        if (first + w >= weights.skip) row_out[first + w - weights.skip] = sums[r][w];
      }
    }
  }
}

template <typename Weights>
void matmul_float(const WeightTile& weights, const Activations& a, float* out, size_t out_stride, void*) {
  constexpr int kRows = kScoreRows;
  uint32_t row = 0;
  for (; a.rows - row >= kRows; row += kRows) float_row_tile<Weights, kRows>(weights, a, row, out, out_stride);
  for (; row < a.rows; ++row) float_row_tile<Weights, 1>(weights, a, row, out, out_stride);
}

}  // namespace
}  // namespace carat::exec::cpu
