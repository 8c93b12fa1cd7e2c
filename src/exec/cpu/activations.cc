#include "exec/cpu/activations.h"

#include "base/error.h"

namespace carat::exec::cpu {

RowTiles::Tile RowTiles::tile(uint32_t index) const {
  const uint32_t whole = rows / full;
  if (index < whole) return {index * full, full};
  uint32_t first = whole * full;
  uint32_t rest = rows % full;
  for (uint32_t skipped = whole;; ++skipped) {
    const uint32_t width = std::bit_floor(rest);
    if (skipped == index) return {first, width};
    first += width;
    rest -= width;
  }
}

ActivationBuffer::ActivationBuffer(const KernelTable& kernels, uint32_t max_rows, uint32_t max_cols, bool int16)
    : kernels_(&kernels), max_rows_(max_rows), max_cols_(max_cols) {
  const size_t values = size_t{max_rows} * max_cols;
  high_ = AlignedBuffer<int8_t>(values);
  if (int16) low_ = AlignedBuffer<int8_t>(values);
  scales_ = AlignedBuffer<float>(values / 32);
  offsets32_ = AlignedBuffer<int32_t>(values / 32);
  offsets16_ = AlignedBuffer<int32_t>(values / 16);
  sums32_ = AlignedBuffer<float>(values / 32);
  sums16_ = AlignedBuffer<float>(values / 16);
  view_.quantised = {high_.data(),      low_.data(),    scales_.data(), offsets32_.data(),
                     offsets16_.data(), sums32_.data(), sums16_.data()};
}

void ActivationBuffer::set_source(const float* values, size_t stride, uint32_t rows, uint32_t cols,
                                  const uint32_t* index) {
  CARAT_CHECK(rows <= max_rows_ && cols <= max_cols_);
  view_.values = values;
  view_.stride = stride;
  view_.index = index;
  view_.rows = rows;
  view_.cols = cols;
}

void ActivationBuffer::quantise(RowTiles::Tile tile) {
  const float* rows[16];
  CARAT_CHECK(tile.width <= std::size(rows));
  for (uint32_t r = 0; r < tile.width; ++r) {
    const uint32_t row = tile.first + r;
    rows[r] = view_.values + size_t{view_.index != nullptr ? view_.index[row] : row} * view_.stride;
  }
  const size_t values = size_t{tile.first} * view_.cols;
  const QuantisedRows& all = view_.quantised;
  const QuantisedRows part = {all.high + values,
                              all.low == nullptr ? nullptr : all.low + values,
                              all.scales + values / 32,
                              all.offsets32 + values / 32,
                              all.offsets16 + values / 16,
                              all.sums32 + values / 32,
                              all.sums16 + values / 16};
  kernels_->quantise_tile(rows, tile.width, view_.cols, part);
}

}  // namespace carat::exec::cpu
