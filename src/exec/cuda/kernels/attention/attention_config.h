#pragma once

#include <cstdint>

#include "exec/cuda/kernels/attention/attention_shape.h"

namespace carat::cuda {

// What a key or value tile is in the cache and in shared memory.
enum class TileStorage {
  kHalf,       // fp16 in both
  kExpanded,   // q8_0 in the cache, expanded to fp16 in shared memory once for all rows of a prompt tile
  kQuantised,  // q8_0 in both; a decode block uses each value once and expands it on the way to the tensor core
};

// The shape of one attention block. Its query rows form a tile of `bm` rows; keys and values pass through it in tiles
// of `bn`. The warps form a grid: warp (m, n) computes the scores of bm / warps_m rows with bn / warps_n keys, and then
// owns hd / warps_n columns of the output of the same rows.
struct AttentionTile {
  int hd;  // columns held; smaller head dimensions are padded with zeros
  int bm;
  int bn;
  int warps_m;
  int warps_n;
  int ring;                // key and value tiles in shared memory; ring - 1 of them can be in flight
  bool queries_in_shared;  // otherwise every warp keeps the fragments of its rows in registers
  TileStorage storage = TileStorage::kHalf;
};

inline constexpr float kLog2E = 1.4426950408889634f;  // softmax by powers of two

constexpr bool is_power_of_two(int value) { return value > 0 && (value & (value - 1)) == 0; }

// Sizes that follow from a tile, and the layout of its shared memory:
//   ring of key and value tiles [ring][bn][hd] fp16 (kQuantised: int8, then scales [bn][hd / 32] fp16) | queries
//   [bm][hd] fp16 | probabilities [bm][bn] fp16 | row maxima (later row sums) [warps_n][bm] fp32
// The last two exist only where several warps share a row.
template <AttentionTile T>
struct AttentionLayout {
  static constexpr int kThreads = 32 * T.warps_m * T.warps_n;
  static constexpr int kRowTiles = T.bm / (16 * T.warps_m);  // 16-row tiles of a warp
  static constexpr int kWarpKeys = T.bn / T.warps_n;         // keys of a warp's scores
  static constexpr int kKeyTiles = kWarpKeys / 8;            // their 8-column tiles
  static constexpr int kWarpColumns = T.hd / T.warps_n;      // output columns of a warp
  static constexpr int kColumnTiles = kWarpColumns / 8;
  static constexpr int kChunks = T.hd / 8;  // 16-byte pieces of a row
  static constexpr bool kSharedRows = T.warps_n > 1;

  static constexpr bool kQuantised = T.storage == TileStorage::kQuantised;
  static constexpr int kScaleColumns = T.hd / 32;  // of a q8_0 cache
  static constexpr int kTileBytes = kQuantised ? T.bn * (T.hd + 2 * kScaleColumns) : T.bn * T.hd * 2;
  static constexpr int kQueryOffset = T.ring * kTileBytes;
  static constexpr int kProbabilityOffset = kQueryOffset + (T.queries_in_shared ? T.bm * T.hd * 2 : 0);
  static constexpr int kMaximaOffset = kProbabilityOffset + (kSharedRows ? T.bm * T.bn * 2 : 0);
  static constexpr int kSharedBytes = kMaximaOffset + (kSharedRows ? T.warps_n * T.bm * 4 : 0);

  // A row of 128 bytes or more lets eight rows of one 16-byte column fall on different banks after the XOR swizzle; the
  // swizzle needs powers of two. A tile of keys is part of one tile of the cache, so its rows are contiguous.
  static_assert(is_power_of_two(T.hd) && T.hd >= 64 && T.hd <= 512);
  static_assert(is_power_of_two(T.bn) && T.bn >= 16 && T.bn <= int{kKvTile});
  static_assert(is_power_of_two(T.warps_n) && T.bm % (16 * T.warps_m) == 0);
  static_assert(kWarpKeys == 8 || kWarpKeys % 16 == 0);
  static_assert(kWarpColumns % 16 == 0);
  static_assert(T.ring >= 2);
  static_assert(kThreads % kChunks == 0 && T.bn % (kThreads / kChunks) == 0);
  // Queries on their way to registers pass through the last tile of the ring.
  static_assert(T.queries_in_shared || T.bm * T.hd * 2 <= kTileBytes);
  static_assert(!kQuantised || (T.hd >= 128 && kWarpColumns % 32 == 0 && kRowTiles == 1));
};

// Prompt tiles. "Wide" ones need the shared memory of a data-centre card, the others fit in 99 KB. A tile's rows do not
// depend on the card, so neither does the way a prompt is cut.
//
// hd 256: two warps share 32 rows (wide: 308 TFLOP/s on an H200, where eight warps of 16 rows reach 275), or eight
// warps of 16 rows each keep probabilities in registers. hd 512: a row's 512 output columns do not fit in one warp's
// registers, so four warps share 32 rows (wide) or two share 16.
//
// (Types, because nvcc takes no structure as the template argument of a kernel.)
struct Prefill128 {
  static constexpr AttentionTile kTile{128, 64, 64, 4, 1, 2, true};
};
struct Prefill256 {
  static constexpr AttentionTile kTile{256, 128, 32, 8, 1, 2, true};
};
struct Prefill256Wide {
  static constexpr AttentionTile kTile{256, 128, 64, 4, 2, 2, true};
};
struct Prefill512 {
  static constexpr AttentionTile kTile{512, 64, 16, 4, 2, 2, true};
};
struct Prefill512Wide {
  static constexpr AttentionTile kTile{512, 64, 64, 2, 4, 2, true};
};

// The same for a q8_0 cache. The ring's places hold a tile in both forms, one after the other.
constexpr AttentionTile expanded(AttentionTile tile) {
  tile.storage = TileStorage::kExpanded;
  return tile;
}
struct Prefill128Q8 {
  static constexpr AttentionTile kTile = expanded(Prefill128::kTile);
};
struct Prefill256Q8 {
  static constexpr AttentionTile kTile = expanded(Prefill256::kTile);
};
struct Prefill256WideQ8 {
  static constexpr AttentionTile kTile = expanded(Prefill256Wide::kTile);
};
struct Prefill512Q8 {
  static constexpr AttentionTile kTile = expanded(Prefill512::kTile);
};
struct Prefill512WideQ8 {
  static constexpr AttentionTile kTile = expanded(Prefill512Wide::kTile);
};

// Decode tiles: one 16-row tile holds the query heads of a KV head; all fit in 99 KB, two blocks share a large SM.
struct Decode128 {
  static constexpr AttentionTile kTile{128, 16, 64, 1, 4, 3, false};
};
struct Decode256 {
  static constexpr AttentionTile kTile{256, 16, 64, 1, 4, 3, false};
};
struct Decode512 {
  static constexpr AttentionTile kTile{512, 16, 32, 1, 4, 3, false};
};

// A q8_0 tile is half as large, so that more of them are in flight.
struct Decode128Q8 {
  static constexpr AttentionTile kTile{128, 16, 64, 1, 4, 5, false, TileStorage::kQuantised};
};
struct Decode256Q8 {
  static constexpr AttentionTile kTile{256, 16, 64, 1, 4, 5, false, TileStorage::kQuantised};
};
struct Decode512Q8 {
  static constexpr AttentionTile kTile{512, 16, 32, 1, 4, 5, false, TileStorage::kQuantised};
};

// A decode block should read at least this much of an fp16 cache, or as many keys of a q8_0 one: with less, its start
// and the combination of the results cost more than the reading.
inline constexpr uint32_t kDecodeMinBytes = 64 * 1024;
template <AttentionTile T>
inline constexpr uint32_t kDecodeMinTiles = (kDecodeMinBytes + 4 * T.bn * T.hd - 1) / (4 * T.bn * T.hd);

// Blocks of one row and KV head; bounded by the counter fields of attention_combine.cuh.
inline constexpr uint32_t kDecodeMaxBlocks = 512;

}  // namespace carat::cuda
