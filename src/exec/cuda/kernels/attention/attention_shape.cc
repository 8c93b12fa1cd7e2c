#include "exec/cuda/kernels/attention/attention_shape.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cuda/kernels/attention/attention_config.h"
#include "exec/cuda/kernels/attention/sparse/attention_sparse_shape.h"

namespace carat::cuda {
namespace {

// Visible keys up to which decode attention is bound by latency: windows, and short contexts.
constexpr uint32_t kFewTiles = 32;

// A tile of 64 rows holds two queries then, and the counter fields of attention_combine.cuh suffice.
constexpr uint32_t kMaxGroup = 32;

template <AttentionTile T>
constexpr uint32_t kSharedBytes = AttentionLayout<T>::kSharedBytes;
static_assert(kSharedBytes<Prefill128::kTile> <= kSmallSharedMemory &&
              kSharedBytes<Prefill256::kTile> <= kSmallSharedMemory &&
              kSharedBytes<Prefill512::kTile> <= kSmallSharedMemory &&
              kSharedBytes<Decode128::kTile> <= kSmallSharedMemory &&
              kSharedBytes<Decode256::kTile> <= kSmallSharedMemory &&
              kSharedBytes<Decode512::kTile> <= kSmallSharedMemory);

uint32_t decode_tile_keys(uint32_t hd) {
  return hd <= 128 ? Decode128::kTile.bn : hd <= 256 ? Decode256::kTile.bn : Decode512::kTile.bn;
}

uint32_t decode_min_tiles(uint32_t hd) {
  return hd <= 128   ? kDecodeMinTiles<Decode128::kTile>
         : hd <= 256 ? kDecodeMinTiles<Decode256::kTile>
                     : kDecodeMinTiles<Decode512::kTile>;
}

}  // namespace

void check_attention_shape(const AttentionShape& shape) {
  if (shape.hd == 0 || shape.hd > 512 || shape.hd % 16 != 0) {
    fail(ErrorCode::kUnsupported, "the GPU attention needs a head dimension that is a multiple of 16 up to 512, not {}",
         shape.hd);
  }
  if (shape.Hkv == 0 || shape.H == 0 || shape.H % shape.Hkv != 0 || shape.H / shape.Hkv > kMaxGroup) {
    fail(ErrorCode::kUnsupported,
         "the GPU attention needs 1 to {} query heads per key/value head, not {} query heads for {} key/value heads",
         kMaxGroup, shape.H, shape.Hkv);
  }
}

uint32_t attention_large_tile_bytes(uint32_t hd) {
  return hd <= 128 ? 0 : hd <= 256 ? kSharedBytes<Prefill256Wide::kTile> : kSharedBytes<Prefill512Wide::kTile>;
}

uint32_t attention_decode_splits(const AttentionShape& shape, uint32_t rows, uint32_t context, uint32_t sm_count) {
  check_attention_shape(shape);
  const uint32_t bn = decode_tile_keys(shape.hd), min_tiles = decode_min_tiles(shape.hd);
  // A window that starts inside a tile touches one tile more.
  const uint32_t windowed = (shape.window + bn - 1) / bn + 1;
  const uint32_t visible = (context + bn - 1) / bn;
  const uint32_t tiles = shape.window == 0 ? visible : std::min(visible, windowed);
  // Few tiles: a block that has one only spends its time on beginning and on combining shares, and a second block on an
  // SM does not pay. Many: two blocks fit on a large SM, and one computes while the other waits for memory.
  const bool few = tiles <= kFewTiles;
  const uint32_t share = few ? std::max(2u, min_tiles) : min_tiles;
  const uint32_t useful = (tiles + share - 1) / share;
  const uint64_t per_split = static_cast<uint64_t>(rows) * shape.Hkv * attention_head_groups(shape);
  const auto filling = static_cast<uint32_t>((few ? 1 : 2) * sm_count / std::max<uint64_t>(per_split, 1));
  return std::clamp(std::min(useful, filling), 1u, kDecodeMaxBlocks / attention_head_groups(shape));
}

bool sparse_attention_supports(const AttentionShape& shape) { return shape.window == 0 && shape.hd > 256; }

uint32_t sparse_attention_shared_memory(uint32_t context) {
  return kSharedBytes<Prefill512Wide::kTile> + (context / kSparseBlock + 1) * static_cast<uint32_t>(sizeof(float));
}

uint32_t sparse_most_blocks(const SparseAttention& sparse, uint32_t context) {
  const uint32_t visible = context / kSparseBlock + 1;
  // The rows of a tile lie in two blocks at most: it has no more of them than a block has keys.
  const uint32_t chosen = sparse.first + sparse_best_blocks(sparse, visible) + sparse.recent + 2;
  return std::max(sparse.from / kSparseBlock + 1, chosen);
}

uint64_t attention_decode_scratch(const AttentionShape& shape, uint32_t rows, uint32_t splits) {
  return static_cast<uint64_t>(rows) * shape.H * splits * (shape.hd + 2);
}

}  // namespace carat::cuda
