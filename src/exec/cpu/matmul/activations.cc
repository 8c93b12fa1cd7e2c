#include "exec/cpu/matmul/activations.h"

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

ActivationBuffer::ActivationBuffer(const KernelTable& kernels, uint32_t max_rows, uint32_t max_cols)
    : kernels_(&kernels),
      max_rows_(max_rows),
      max_cols_(max_cols),
      quants_(size_t{2} * max_rows * max_cols),
      scales_(size_t{max_rows} * max_cols / 32),
      offsets32_(size_t{max_rows} * max_cols / 32),
      offsets16_(size_t{max_rows} * max_cols / 16),
      sums32_(size_t{max_rows} * max_cols / 32),
      sums16_(size_t{max_rows} * max_cols / 16) {}

void ActivationBuffer::set_source(const float* values, size_t stride, uint32_t rows, uint32_t cols, bool int16,
                                  const uint32_t* index) {
  CARAT_CHECK(rows <= max_rows_ && cols <= max_cols_);
  view_.quantised = {.narrow = int16 ? nullptr : reinterpret_cast<int8_t*>(quants_.data()),
                     .wide = int16 ? quants_.data() : nullptr,
                     .scales = scales_.data(),
                     .offsets32 = offsets32_.data(),
                     .offsets16 = offsets16_.data(),
                     .sums32 = sums32_.data(),
                     .sums16 = sums16_.data()};
  view_.values = values;
  view_.stride = stride;
  view_.index = index;
  view_.rows = rows;
  view_.cols = cols;
}

Activations ActivationBuffer::slice(uint32_t first, uint32_t rows) const {
  CARAT_CHECK(first + rows <= view_.rows);
  const size_t values = size_t{first} * view_.cols;
  Activations part = view_;
  if (part.quantised.narrow != nullptr) part.quantised.narrow += values;
  if (part.quantised.wide != nullptr) part.quantised.wide += 2 * values;
  part.quantised.scales += values / 32;
  part.quantised.offsets32 += values / 32;
  part.quantised.offsets16 += values / 16;
  part.quantised.sums32 += values / 32;
  part.quantised.sums16 += values / 16;
  if (part.index != nullptr) {
    part.index += first;
  } else {
    part.values += first * part.stride;
  }
  part.rows = rows;
  return part;
}

void ActivationBuffer::quantise(RowTiles::Tile tile) {
  constexpr uint32_t kMostRows = 16;
  CARAT_CHECK(tile.width <= kMostRows);
  const float* rows[kMostRows];
  for (uint32_t r = 0; r < tile.width; ++r) {
    const uint32_t row = tile.first + r;
    rows[r] = view_.values + size_t{view_.index != nullptr ? view_.index[row] : row} * view_.stride;
  }
  kernels_->quantise_tile(rows, tile.width, view_.cols, slice(tile.first, tile.width).quantised);
}

}  // namespace carat::exec::cpu
