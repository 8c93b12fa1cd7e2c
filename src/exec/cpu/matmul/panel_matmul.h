#pragma once

// Matrix products with quantised weights in integer arithmetic.
//
// kLanes weight rows are unpacked into a panel of at most kPanelCols columns that stays in the first-level cache, then
// every tile of activation rows runs over it: one load of weights serves all rows of the tile, and a weight is unpacked
// once however many rows there are. What bounds it: the dot product instruction. (One or two rows: direct_matmul.h.)
//
// The result of one (weight row, activation row) is, block by block of 32 columns in order,
//   sum = fma(float(integer dot) * weight scale, activation scale, sum)        and with a bias
//   sum = fma(bias, activation sum, sum)
// in one chain. Integer dots are exact, so nothing depends on how rows are grouped.
// Included after panel_formats.h.

#include "exec/cpu/matmul/panel_formats.h"

namespace carat::exec::cpu {
namespace {

constexpr uint32_t kPanelCols = 1024;

struct Panel {
  uint8_t* bytes;  // [kPanelCols / 4][kLanes][4]
  float* scales;   // [kPanelCols / kSub][kLanes]
  float* biases;
  float* partials;  // [rows][kLanes]: sums over the columns before this panel

  explicit Panel(void* scratch) {
    bytes = static_cast<uint8_t*>(scratch);
    scales = reinterpret_cast<float*>(bytes + size_t{kPanelCols} * kLanes);
    biases = scales + size_t{kPanelCols} / 16 * kLanes;
    partials = biases + size_t{kPanelCols} / 16 * kLanes;
  }
};

inline size_t panel_scratch_bytes(uint32_t max_rows) {
  return size_t{kPanelCols} * kLanes + (size_t{2} * kPanelCols / 16 + max_rows) * kLanes * sizeof(float);
}

// One tile of activation rows from some column on.
struct RowTile {
  const uint8_t* quants;  // narrow or wide ones
  const float* scales;
  const int32_t* offsets;  // of sub-blocks of the format's size
  const float* sums;
};

template <bool kInt16>
constexpr size_t kQuantBytes = kInt16 ? 2 : 1;

template <typename Format, bool kInt16, int kRows>
inline RowTile row_tile(const Activations& a, uint32_t row, uint32_t col) {
  constexpr bool kHalfBlocks = Format::kSub == 16;
  const QuantisedRows& q = a.quantised;
  const uint8_t* quants = kInt16 ? q.wide : reinterpret_cast<const uint8_t*>(q.narrow);
  const size_t quant = size_t{row} * a.cols + size_t{col} * kRows;
  const size_t block = size_t{row} * (a.cols / kBlock) + size_t{col / kBlock} * kRows;
  const size_t sub = size_t{row} * (a.cols / Format::kSub) + size_t{col / Format::kSub} * kRows;
  return {quants + quant * kQuantBytes<kInt16>, q.scales + block, (kHalfBlocks ? q.offsets16 : q.offsets32) + sub,
          (kHalfBlocks ? q.sums16 : q.sums32) + sub};
}

template <typename Format>
inline Ints dot_bytes(Ints sum, Ints weights, const uint8_t* four) {
  return Format::kWide ? dot_wide(sum, weights, broadcast_bytes(four))
                       : dot_narrow(sum, weights, broadcast_bytes(four));
}

// The integer dots of one sub-block with each row of the tile, added to totals.
template <typename Format, int kRows>
inline void dot_narrow_quants(const uint8_t* panel, const uint8_t* quants, Ints totals[kRows]) {
#pragma GCC unroll 8
  for (int j = 0; j < Format::kSub / 4; ++j) {
    const Ints weights = load_ints(panel + static_cast<size_t>(j) * sizeof(Ints));
    for (int r = 0; r < kRows; ++r) totals[r] = dot_bytes<Format>(totals[r], weights, quants + 4 * (j * kRows + r));
  }
}

// One word of weights with quants of 15 bits. Planes of high bytes are summed apart, to be added by with_highs().
template <typename Format, int kRows>
inline void dot_wide_word(Ints weights, const uint8_t* quants, Ints totals[kRows], Ints highs[kRows]) {
  if constexpr (kInt16Layout == Int16Layout::kPairs) {
    constexpr bool kSigned = Format::kWide && !kWideIsUnsigned;
    const Ints even = even_bytes<kSigned>(weights), odd = odd_bytes<kSigned>(weights);
    for (int r = 0; r < kRows; ++r) {
      totals[r] = dot_pairs(totals[r], even, broadcast_bytes(quants + 8 * r));
      totals[r] = dot_pairs(totals[r], odd, broadcast_bytes(quants + 8 * r + 4));
    }
  } else {
    for (int r = 0; r < kRows; ++r) {
      highs[r] = dot_bytes<Format>(highs[r], weights, quants + 8 * r);
      totals[r] = dot_bytes<Format>(totals[r], weights, quants + 8 * r + 4);
    }
  }
}

inline Ints with_highs(Ints total, Ints high) {
  return kInt16Layout == Int16Layout::kPairs ? total : add(total, shift_left<7>(high));
}

template <typename Format, int kRows>
inline void dot_wide_quants(const uint8_t* panel, const uint8_t* quants, Ints totals[kRows]) {
  Ints highs[kRows];
  for (int r = 0; r < kRows; ++r) highs[r] = broadcast_int(0);
#pragma GCC unroll 8
  for (int j = 0; j < Format::kSub / 4; ++j) {
    const Ints weights = load_ints(panel + static_cast<size_t>(j) * sizeof(Ints));
    dot_wide_word<Format, kRows>(weights, quants + 8 * j * kRows, totals, highs);
  }
  for (int r = 0; r < kRows; ++r) totals[r] = with_highs(totals[r], highs[r]);
}

// What the dots of a sub-block start from: unsigned weights without a bias have `zero` too much in each product.
template <typename Format>
inline Ints starting_total(int32_t offset) {
  if (Format::kAffine || (Format::kWide && !kWideIsUnsigned)) return broadcast_int(0);
  return shift_right_signed<Format::kZeroShift>(broadcast_int(offset));
}

template <typename Format, bool kInt16, int kRows>
inline void accumulate(const Panel& panel, uint32_t cols, RowTile a, Floats sums[kRows]) {
  constexpr int kSubs = static_cast<int>(kBlock) / Format::kSub;
  const uint8_t* bytes = panel.bytes;
  const float* scales = panel.scales;
  const float* biases = panel.biases;
  for (uint32_t col = 0; col < cols; col += kBlock) {
    for (int sub = 0; sub < kSubs; ++sub) {
      Ints totals[kRows];
      for (int r = 0; r < kRows; ++r) totals[r] = starting_total<Format>(a.offsets[r]);
      if constexpr (kInt16) {
        dot_wide_quants<Format, kRows>(bytes, a.quants, totals);
      } else {
        dot_narrow_quants<Format, kRows>(bytes, a.quants, totals);
      }
      const Floats scale = load(scales);
      for (int r = 0; r < kRows; ++r) {
        sums[r] = multiply_add(multiply(to_floats(totals[r]), scale), broadcast(a.scales[r]), sums[r]);
      }
      if constexpr (Format::kAffine) {
        const Floats bias = load(biases);
        for (int r = 0; r < kRows; ++r) sums[r] = multiply_add(bias, broadcast(a.sums[r]), sums[r]);
        biases += kLanes;
        a.sums += kRows;
      }
      bytes += Format::kSub * kLanes;
      scales += kLanes;
      a.quants += Format::kSub * kRows * kQuantBytes<kInt16>;
      a.offsets += kRows;
    }
    a.scales += kRows;
  }
}

// Stores the lanes of one result row that belong to the tile.
inline void store_lanes(float* out, Floats v, uint32_t skip) {
  if (skip == 0) {
    store(out, v);
    return;
  }
  float lanes[kLanes];
  store(lanes, v);
  for (uint32_t lane = skip; lane < kLanes; ++lane) out[lane - skip] = lanes[lane];
}

struct PanelColumns {
  uint32_t first;
  uint32_t count;
  bool last;
};

template <typename Format, bool kInt16, int kRows>
inline void multiply_row_tile(const Panel& panel, const PanelColumns& columns, const Activations& a, uint32_t row,
                              uint32_t skip, float* out, size_t out_stride) {
  Floats sums[kRows];
  float* partials = panel.partials + size_t{row} * kLanes;
  for (int r = 0; r < kRows; ++r) sums[r] = columns.first == 0 ? broadcast(0.0f) : load(partials + r * kLanes);
  accumulate<Format, kInt16, kRows>(panel, columns.count, row_tile<Format, kInt16, kRows>(a, row, columns.first), sums);
  for (int r = 0; r < kRows; ++r) {
    if (columns.last) {
      store_lanes(out + (size_t{row} + static_cast<size_t>(r)) * out_stride, sums[r], skip);
    } else {
      store(partials + r * kLanes, sums[r]);
    }
  }
}

// What of a format the products of a panel depend on: formats that agree in it share their code.
template <int kSubBlock, int kShift, bool kAllBits, bool kHasBias>
struct Arithmetic {
  static constexpr int kSub = kSubBlock, kZeroShift = kShift;
  static constexpr bool kWide = kAllBits, kAffine = kHasBias;
};
template <typename Format>
using ArithmeticOf = Arithmetic<Format::kSub, Format::kZeroShift, Format::kWide, Format::kAffine>;

// How a panel of a format is filled.
struct PanelDecoder {
  void (*decode)(StoredRows rows, uint32_t cols, const Panel& panel);
  uint32_t elements;  // of a block
  size_t block_bytes;
};

template <typename Format>
void decode_panel(StoredRows rows, uint32_t cols, const Panel& panel) {
  constexpr size_t kBlockBytes = sizeof(typename Format::Block);
  PanelBlock out = {panel.bytes, panel.scales, panel.biases};
  for (uint32_t col = 0; col < cols; col += Format::kElements) {
    Format::decode(rows, out);
    rows.advance(kBlockBytes);
    out.bytes += Format::kElements * kLanes;
    out.scales += Format::kElements / Format::kSub * kLanes;
    out.biases += Format::kElements / Format::kSub * kLanes;
  }
}

template <typename Format, bool kInt16>
__attribute__((noinline)) void multiply_panels(const PanelDecoder& decoder, const WeightTile& weights,
                                               const Activations& a, float* out, size_t out_stride, void* scratch) {
  const Panel panel(scratch);
  for (uint32_t first = 0; first < a.cols; first += kPanelCols) {
    const uint32_t count = a.cols - first < kPanelCols ? a.cols - first : kPanelCols;
    const PanelColumns columns = {first, count, first + count == a.cols};
    const size_t offset = size_t{first / decoder.elements} * decoder.block_bytes;
    const uint8_t* next_tile = weights.data + kLanes * weights.row_bytes;
    decoder.decode({weights.data + offset, weights.row_bytes, next_tile + kLanes * offset}, count, panel);
    uint32_t row = 0;
    for (; a.rows - row >= kTileRows; row += kTileRows) {
      multiply_row_tile<Format, kInt16, kTileRows>(panel, columns, a, row, weights.skip, out, out_stride);
    }
    if constexpr (kTileRows > 4) {
      if (a.rows - row >= 4) {
        multiply_row_tile<Format, kInt16, 4>(panel, columns, a, row, weights.skip, out, out_stride);
        row += 4;
      }
    }
    if (a.rows - row >= 2) {
      multiply_row_tile<Format, kInt16, 2>(panel, columns, a, row, weights.skip, out, out_stride);
      row += 2;
    }
    if (a.rows - row >= 1) {
      multiply_row_tile<Format, kInt16, 1>(panel, columns, a, row, weights.skip, out, out_stride);
    }
  }
}

template <typename Format, bool kInt16>
void matmul_panel(const WeightTile& weights, const Activations& a, float* out, size_t out_stride, void* scratch) {
  constexpr PanelDecoder kDecoder = {decode_panel<Format>, Format::kElements, sizeof(typename Format::Block)};
  multiply_panels<ArithmeticOf<Format>, kInt16>(kDecoder, weights, a, out, out_stride, scratch);
}

}  // namespace
}  // namespace carat::exec::cpu
