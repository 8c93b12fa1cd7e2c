#pragma once

#include <cstdint>

namespace carat::cuda {

// What a plan has to know about attention: shapes, tiles and scratch sizes, without anything of CUDA.

struct AttentionShape {
  uint32_t H;  // query heads
  uint32_t Hkv;
  uint32_t hd;      // 256 or 512 (other multiples of 16 up to 512 take the general kernel)
  uint32_t window;  // visible keys including the query's own; 0: all
};

// Consecutive rows of one sequence: row r + i holds position `position` + i.
struct Segment {
  uint32_t row;
  uint32_t count;
  uint32_t position;
  uint32_t sequence;
};

// Caches keep whole tiles of so many positions: those of a tile that begins at a multiple of it lie one after the
// other.
inline constexpr uint32_t kKvTile = 64;

// A q8_0 cache keeps one scale for this many values of a row.
inline constexpr uint32_t kKvScaleBlock = 32;

// Scales of a row in a q8_0 cache: those of the widest head that takes the same kernel, so that scales of consecutive
// cells are whole pieces of 8 bytes.
constexpr uint32_t kv_scale_columns(uint32_t hd) { return (hd <= 128 ? 128 : hd <= 256 ? 256 : 512) / kKvScaleBlock; }

// Bytes of one key or value in the cache.
constexpr uint64_t kv_row_bytes(uint32_t hd, bool quantised) {
  return quantised ? hd + uint64_t{2} * kv_scale_columns(hd) : uint64_t{2} * hd;
}

// Throws kUnsupported for head dimensions and groupings the kernels do not have.
void check_attention_shape(const AttentionShape& shape);

// Query heads that share a key/value head are worked on in tiles of 16.
constexpr uint32_t attention_head_groups(const AttentionShape& shape) { return (shape.H / shape.Hkv + 15) / 16; }

// Whether decode attention has a kernel that starts from the projections (attention_step.h): one block has all query
// heads of a KV head, so that one puts the new key and value into the cache.
constexpr bool attention_step_supports(const AttentionShape& shape) {
  return shape.hd > 128 && attention_head_groups(shape) == 1;
}

// Prompt attention by warpgroups (attention_wgmma.h): head sizes it has, and rows of its tiles; a query has one for
// each of the heads that share a KV head.
inline constexpr uint32_t kWarpgroupTileRows = 128;
constexpr bool warpgroup_attention_supports(const AttentionShape& shape, bool quantised_cache) {
  return !quantised_cache && (shape.hd == 256 || (shape.hd == 512 && shape.window == 0));
}

// Shared memory of a block in which every kernel runs (sm_86, sm_89, sm_120), and what the larger prompt tiles of a
// head dimension need; 0 where there are none.
inline constexpr uint32_t kSmallSharedMemory = 99 * 1024;
uint32_t attention_large_tile_bytes(uint32_t hd);

// Into how many blocks per row and KV head decode splits the keys, and the fp32 scratch elements that takes.
uint32_t attention_decode_splits(const AttentionShape& shape, uint32_t rows, uint32_t context, uint32_t sm_count);
uint64_t attention_decode_scratch(const AttentionShape& shape, uint32_t rows, uint32_t splits);

}  // namespace carat::cuda
