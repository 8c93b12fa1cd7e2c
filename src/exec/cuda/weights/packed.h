#pragma once

#include <cstdint>
#include <initializer_list>

namespace carat::cuda {

// How a weight matrix lies in device memory. GGUF blocks are 18, 34, 144 ... bytes and force narrow loads; here quants
// are 16-byte aligned and apart from their scales, and the file's bits are kept exactly.
//
// A row is cut into steps of 256 columns (the last one padded with zeros). Eight lanes of a warp read one step of one
// row: lane l gets block l, columns 32 l ... 32 l + 31 of the step. Per step:
//   kQ8   quants uint4[2][8]: [half][lane], 16 int8 each          scales half[8]                  Q8_0, Q5_0, IQ4_NL
//   kQ4   quants uint4[8]: byte j = column j | column j + 16 << 4  scales half[8]                  Q4_0
//   kQ4K  as kQ4; header uint4: d, dmin (half) | low nibbles S, M of 8 blocks | high 2 bits of both  Q4_K
//   kQ5K  as kQ4K plus high uint32[8]: bit 8 b + 4 i + w = fifth bit of column 16 i + 4 w + b         Q5_K
//   kQ6K  as kQ4 plus high uint2[8]: [i], bits 8 b + 2 w = top bits of column 16 i + 4 w + b;
//         scales int8[16] (two per block), super half[1]                                              Q6_K
//   kF16, kBF16, kF32: values in column order                                                         everything else
enum class Packing : uint32_t { kQ8, kQ4, kQ4K, kQ5K, kQ6K, kF16, kBF16, kF32 };

// Some of them, a bit each.
using PackingSet = uint32_t;
constexpr PackingSet packing_set(std::initializer_list<Packing> packings) {
  PackingSet set = 0;
  for (const Packing packing : packings) set |= 1u << static_cast<uint32_t>(packing);
  return set;
}
constexpr bool contains(PackingSet set, Packing packing) { return (set & packing_set({packing})) != 0; }
inline constexpr uint32_t kPackingCount = 8;
inline constexpr PackingSet kAllPackings = (1u << kPackingCount) - 1;
static_assert(static_cast<uint32_t>(Packing::kF32) + 1 == kPackingCount);
// Whether a packing of the set is `asked`: known when compiled where the set leaves no choice.
template <PackingSet kPackings>
constexpr bool is_packing(Packing packing, Packing asked) {
  return contains(kPackings, asked) && (kPackings == packing_set({asked}) || packing == asked);
}

inline constexpr uint32_t kStep = 256;      // columns per step
inline constexpr uint32_t kStepBlocks = 8;  // blocks of 32 columns per step

// A matrix in device memory (or page-locked host memory that the device can read). Plain data, passed to kernels.
struct PackedView {
  Packing packing = Packing::kBF16;
  uint32_t rows = 0;
  uint32_t cols = 0;   // true columns
  uint32_t steps = 0;  // ceil(cols / 256)
  const void* quants = nullptr;
  const void* high = nullptr;    // kQ5K, kQ6K
  const void* scales = nullptr;  // all but the float packings
  const void* super = nullptr;   // kQ6K
};

struct PackedBytes {  // bytes per step of each plane
  uint32_t quants, high, scales, super;
  constexpr uint32_t total() const { return quants + high + scales + super; }
};

constexpr PackedBytes packed_bytes(Packing packing) {
  switch (packing) {
    case Packing::kQ8:
      return {256, 0, 16, 0};
    case Packing::kQ4:
      return {128, 0, 16, 0};
    case Packing::kQ4K:
      return {128, 0, 16, 0};
    case Packing::kQ5K:
      return {128, 32, 16, 0};
    case Packing::kQ6K:
      return {128, 64, 16, 2};
    case Packing::kF16:
      return {512, 0, 0, 0};
    case Packing::kBF16:
      return {512, 0, 0, 0};
    case Packing::kF32:
      return {1024, 0, 0, 0};
  }
  return {};
}
// Of a packing that is one of a set: fewer questions where the set is small.
template <PackingSet kPackings>
constexpr PackedBytes packed_bytes_in(Packing packing) {
  PackedBytes bytes{};
  for (uint32_t i = 0; i < kPackingCount; ++i) {
    const auto one = static_cast<Packing>(i);
    if (is_packing<kPackings>(packing, one)) bytes = packed_bytes(one);
  }
  return bytes;
}

constexpr bool is_float_packing(Packing packing) {
  return packing == Packing::kF16 || packing == Packing::kBF16 || packing == Packing::kF32;
}

constexpr uint32_t steps_of(uint64_t cols) { return static_cast<uint32_t>((cols + kStep - 1) / kStep); }

constexpr uint64_t packed_matrix_bytes(Packing packing, uint64_t rows, uint64_t cols) {
  // Each plane starts on a 256-byte boundary.
  const PackedBytes bytes = packed_bytes(packing);
  const uint64_t cells = rows * steps_of(cols);
  uint64_t sum = 0;
  for (const uint64_t plane : {cells * bytes.quants, cells * bytes.high, cells * bytes.scales, cells * bytes.super}) {
    sum += (plane + 255) / 256 * 256;
  }
  return sum;
}

// A run of rows as a view of its own.
inline PackedView packed_rows(const PackedView& view, uint64_t first, uint32_t count) {
  const PackedBytes bytes = packed_bytes(view.packing);
  const uint64_t cells = first * view.steps;
  PackedView part = view;
  const auto at = [cells](const void* plane, uint64_t step_bytes) -> const void* {
    return plane == nullptr ? nullptr : static_cast<const char*>(plane) + cells * step_bytes;
  };
  part.rows = count;
  part.quants = at(view.quants, bytes.quants);
  part.high = at(view.high, bytes.high);
  part.scales = at(view.scales, bytes.scales);
  part.super = at(view.super, bytes.super);
  return part;
}

}  // namespace carat::cuda
