#pragma once

// Products of one or two rows with quantised weights: kLanes weight rows are multiplied while they are unpacked. More
// rows take the panel, which unpacks a weight once for all of them. The results have the same bits (panel_matmul.h says
// how they are summed). What bounds it: with one row, the memory the weights come from; each block asks for the one
// that lies as far into the next tile, so a worker should go through tiles in order (shares.h). Included after one of
// the simd_*.h headers.

#include "exec/cpu/matmul/panel_matmul.h"

namespace carat::exec::cpu {
namespace {

// Where a decoder puts a block when there are few rows of activations: nothing is kept, words are multiplied as they
// come.
template <typename Format, bool kInt16, int kRows>
struct DirectBlock {
  static constexpr int kSubs = Format::kElements / Format::kSub;
  static constexpr int kWords = Format::kSub / 4;  // of a sub-block

  RowTile a;
  Floats sums[kRows];
  Ints totals[kSubs][kRows], highs[kSubs][kRows];
  Floats scales[kSubs], biases[kSubs];

  void word(int j, Ints weights) {
    const int sub = j / kWords;
    if (j % kWords == 0) {
      for (int r = 0; r < kRows; ++r) {
        totals[sub][r] = starting_total<Format>(a.offsets[sub * kRows + r]);
        highs[sub][r] = broadcast_int(0);
      }
    }
    const uint8_t* quants = a.quants + static_cast<size_t>(4 * j * kRows) * kQuantBytes<kInt16>;
    if constexpr (kInt16) {
      dot_wide_word<Format, kRows>(weights, quants, totals[sub], highs[sub]);
    } else {
      for (int r = 0; r < kRows; ++r) totals[sub][r] = dot_bytes<Format>(totals[sub][r], weights, quants + 4 * r);
    }
  }
  void scale(int sub, Floats v) { scales[sub] = v; }
  void bias(int sub, Floats v) { biases[sub] = v; }
  void complete(int first, int count) {
    for (int sub = first; sub < first + count; ++sub) {
      const float* activation_scales = a.scales + sub * Format::kSub / static_cast<int>(kBlock) * kRows;
      for (int r = 0; r < kRows; ++r) {
        const Ints total = kInt16 ? with_highs(totals[sub][r], highs[sub][r]) : totals[sub][r];
        sums[r] = multiply_add(multiply(to_floats(total), scales[sub]), broadcast(activation_scales[r]), sums[r]);
        if constexpr (Format::kAffine) {
          sums[r] = multiply_add(biases[sub], broadcast(a.sums[sub * kRows + r]), sums[r]);
        }
      }
    }
  }
  void advance() {
    a.quants += Format::kElements * kRows * kQuantBytes<kInt16>;
    a.scales += Format::kElements / kBlock * kRows;
    a.offsets += kSubs * kRows;
    a.sums += kSubs * kRows;
  }
};

// Flattened: everything a decoder calls has to be in this loop for its arrays to become registers.
template <typename Format, bool kInt16, int kRows>
__attribute__((flatten)) void multiply_directly(const WeightTile& weights, const Activations& a, float* out,
                                                size_t out_stride) {
  constexpr size_t kBlockBytes = sizeof(typename Format::Block);
  StoredRows rows(weights.data, weights.row_bytes, weights.data + kLanes * weights.row_bytes);
  DirectBlock<Format, kInt16, kRows> block;
  block.a = row_tile<Format, kInt16, kRows>(a, 0, 0);
  for (int r = 0; r < kRows; ++r) block.sums[r] = broadcast(0.0f);
  for (uint32_t col = 0; col < a.cols; col += Format::kElements) {
    Format::decode(rows, block);
    rows.advance(kBlockBytes);
    block.advance();
  }
  for (int r = 0; r < kRows; ++r) {
    store_lanes(out + static_cast<size_t>(r) * out_stride, block.sums[r], weights.skip);
  }
}

template <typename Format, bool kInt16>
void matmul_quantised(const WeightTile& weights, const Activations& a, float* out, size_t out_stride, void* scratch) {
  if (a.rows == 1) return multiply_directly<Format, kInt16, 1>(weights, a, out, out_stride);
  if (a.rows == 2) return multiply_directly<Format, kInt16, 2>(weights, a, out, out_stride);
  matmul_panel<Format, kInt16>(weights, a, out, out_stride, scratch);
}

template <typename Format, bool kInt16>
void matmul_single(const WeightTile& weights, const Activations& a, float* out, size_t out_stride, void* scratch) {
  if (a.rows == 1) return multiply_directly<Format, kInt16, 1>(weights, a, out, out_stride);
  matmul_panel<Format, kInt16>(weights, a, out, out_stride, scratch);
}

}  // namespace
}  // namespace carat::exec::cpu
