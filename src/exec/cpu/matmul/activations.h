#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "exec/cpu/aligned_buffer.h"
#include "exec/cpu/kernel_table.h"

namespace carat::exec::cpu {

// How `rows` rows are cut into tiles of the kernels: full ones, then the powers of two that make up the rest.
struct RowTiles {
  struct Tile {
    uint32_t first;
    uint32_t width;
  };
  uint32_t rows;
  uint32_t full;  // rows of a full tile, a power of two

  uint32_t count() const { return rows / full + static_cast<uint32_t>(std::popcount(rows % full)); }
  Tile tile(uint32_t index) const;
};

// Room for the inputs of matrix products: their integer form, and a view of the fp32 values they were made from.
// Several threads may quantise different tiles at once.
class ActivationBuffer {
 public:
  ActivationBuffer(const KernelTable& kernels, uint32_t max_rows, uint32_t max_cols);

  // Names the next inputs: `rows` rows of `cols` fp32 values, `stride` apart. Row r is row index[r] of `values` when an
  // index is given; it must stay alive as long as view() is used.
  void set_source(const float* values, size_t stride, uint32_t rows, uint32_t cols, bool int16,
                  const uint32_t* index = nullptr);
  RowTiles tiles() const { return {view_.rows, kernels_->tile_rows}; }
  // Quantises one tile of the source. cols must be a multiple of 32.
  void quantise(RowTiles::Tile tile);
  const Activations& view() const { return view_; }
  // Rows [first, first + rows) alone; they must have been quantised in tiles of their own.
  Activations slice(uint32_t first, uint32_t rows) const;

 private:
  const KernelTable* kernels_;
  uint32_t max_rows_;
  uint32_t max_cols_;
  AlignedBuffer<uint8_t> quants_;  // two bytes for each value, of which int8 mode uses one
  AlignedBuffer<float> scales_;
  AlignedBuffer<int32_t> offsets32_;
  AlignedBuffer<int32_t> offsets16_;
  AlignedBuffer<float> sums32_;
  AlignedBuffer<float> sums16_;
  Activations view_ = {};
};

}  // namespace carat::exec::cpu
