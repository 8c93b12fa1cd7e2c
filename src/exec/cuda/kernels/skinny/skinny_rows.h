#pragma once

#include <cstdint>

namespace carat::cuda {

inline constexpr uint32_t kSkinnyRows = 64;  // most activation rows of a batched product
inline constexpr uint32_t kSkinnyTileRows = 8;
inline constexpr uint32_t kSkinnyStepChunks = 8;  // 16-byte chunks of a step that one lane holds

// Tiles of 8 rows the kernels come for: 1, 2, 4 or 8.
constexpr uint32_t skinny_tiles(uint32_t rows) { return rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : 8; }

// A batched decode step is captured once for each of these numbers of rows; fewer rows are padded.
inline constexpr uint32_t kSkinnyBuckets[] = {8, 16, 24, 32, 48, 64};
// The smallest bucket that holds `rows` (1..64), and the largest that `rows` fill; 0: none.
constexpr uint32_t skinny_bucket(uint32_t rows) {
  for (const uint32_t bucket : kSkinnyBuckets) {
    if (rows <= bucket) return bucket;
  }
  return kSkinnyRows;
}
constexpr uint32_t skinny_filled_bucket(uint32_t rows) {
  uint32_t filled = 0;
  for (const uint32_t bucket : kSkinnyBuckets) {
    if (bucket <= rows) filled = bucket;
  }
  return filled;
}

// The rows a decode step of any number is padded to: beyond the buckets above a few rows more cost next to nothing.
constexpr uint32_t decode_bucket(uint32_t rows) {
  return rows <= kSkinnyRows ? skinny_bucket(rows) : (rows + 31) / 32 * 32;
}

// Rows of activations as the tensor cores read them: v = scale * fp16, scale a power of two that brings the largest of
// the row to 2^14 ... 2^15, so that nothing overflows and nothing but fp16's own rounding is lost.
// fragments: uint4 [steps][8 chunks][tiles][32 lanes]. Lane 4 g + t of chunk c of a tile holds 8 columns of
// the tile's row g, those from 256 step + 32 (4 (c / 4) + t) + 8 (c % 4) on in the order 0 2 1 3 4 6 5 7: of a weight
// row, lane t then needs blocks t and 4 + t only, which it loads 16 bytes at a time, and the order is the one in which
// nibbles unpack. Columns beyond the true width are zero; rows beyond the true number may hold anything.
struct SkinnyRows {
  uint32_t* fragments;
  float* scale;    // [rows]
  uint32_t tiles;  // of 8 rows
};
constexpr uint64_t skinny_fragment_words(uint32_t steps, uint32_t rows) {
  return uint64_t{steps} * kSkinnyStepChunks * skinny_tiles(rows) * 32 * 4;
}

}  // namespace carat::cuda
