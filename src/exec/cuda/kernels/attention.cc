#include "exec/cuda/kernels/attention.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cuda/kernels/attention_config.h"
#include "exec/cuda/kernels/attention_launch.h"

namespace carat::cuda {
namespace {

// A tile of 64 rows holds two queries then, and the counter fields of attention_combine.cuh suffice.
constexpr uint32_t kMaxGroup = 32;

template <AttentionTile T>
constexpr uint32_t kSharedBytes = AttentionLayout<T>::kSharedBytes;
constexpr uint32_t kSmallCard = 99 * 1024;  // most shared memory of a block on sm_86, sm_89 and sm_120
static_assert(kSharedBytes<Prefill128::kTile> <= kSmallCard && kSharedBytes<Prefill256::kTile> <= kSmallCard &&
              kSharedBytes<Prefill512::kTile> <= kSmallCard && kSharedBytes<Decode128::kTile> <= kSmallCard &&
              kSharedBytes<Decode256::kTile> <= kSmallCard && kSharedBytes<Decode512::kTile> <= kSmallCard);
// The cut of a prompt into tiles must not depend on the card.
static_assert(Prefill256::kTile.bm == Prefill256Wide::kTile.bm && Prefill512::kTile.bm == Prefill512Wide::kTile.bm);

void check_shape(const AttentionShape& shape) {
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

void check_cache(const KvView& kv) { CARAT_CHECK(kv.slots > 0 && kv.slots % 64 == 0); }

// The 512-column tiles of a small card fit every supported card, so they set what is needed at least.
void check_shared_memory(uint32_t limit) {
  if (limit < kSmallCard) {
    fail(ErrorCode::kUnsupported,
         "the GPU attention needs {} bytes of shared memory per block and this GPU has {}; run on the CPU (-ngl 0)",
         kSmallCard, limit);
  }
}

uint32_t tile_rows(uint32_t hd) {
  return hd <= 128 ? Prefill128::kTile.bm : hd <= 256 ? Prefill256::kTile.bm : Prefill512::kTile.bm;
}

uint32_t decode_tile_keys(uint32_t hd) {
  return hd <= 128 ? Decode128::kTile.bn : hd <= 256 ? Decode256::kTile.bn : Decode512::kTile.bn;
}

uint32_t decode_min_tiles(uint32_t hd) {
  return hd <= 128   ? kDecodeMinTiles<Decode128::kTile>
         : hd <= 256 ? kDecodeMinTiles<Decode256::kTile>
                     : kDecodeMinTiles<Decode512::kTile>;
}

uint32_t head_groups(const AttentionShape& shape) { return (shape.H / shape.Hkv + 15) / 16; }

}  // namespace

uint32_t attention_tile_rows(const AttentionShape& shape, uint32_t shared_memory_limit) {
  check_shape(shape);
  check_shared_memory(shared_memory_limit);
  return tile_rows(shape.hd) / (shape.H / shape.Hkv);
}

void attention_prefill(const AttentionShape& shape, const __half* q, const KvView& kv, const Segment* tiles,
                       uint32_t tile_count, __nv_bfloat16* out, uint32_t shared_memory_limit, const Launch& how) {
  check_shape(shape);
  check_cache(kv);
  check_shared_memory(shared_memory_limit);
  const PrefillArguments arguments{shape, q, kv, tiles, tile_count, out};
  if (shape.hd <= 128) {
    launch_prefill_128(arguments, how);
  } else if (shape.hd <= 256) {
    launch_prefill_256(arguments, shared_memory_limit >= kSharedBytes<Prefill256Wide::kTile>, how);
  } else {
    launch_prefill_512(arguments, shared_memory_limit >= kSharedBytes<Prefill512Wide::kTile>, how);
  }
}

uint32_t attention_decode_splits(const AttentionShape& shape, uint32_t rows, uint32_t context, uint32_t sm_count) {
  check_shape(shape);
  const uint32_t bn = decode_tile_keys(shape.hd), min_tiles = decode_min_tiles(shape.hd);
  // A window that starts inside a tile touches one tile more.
  const uint32_t windowed = (shape.window + bn - 1) / bn + 1;
  const uint32_t visible = (context + bn - 1) / bn;
  const uint32_t tiles = shape.window == 0 ? visible : std::min(visible, windowed);
  const uint32_t useful = (tiles + min_tiles - 1) / min_tiles;
  // Two blocks fit on a large SM: one computes while the other waits for memory.
  const uint64_t per_split = static_cast<uint64_t>(rows) * shape.Hkv * head_groups(shape);
  const auto filling = static_cast<uint32_t>(2 * sm_count / std::max<uint64_t>(per_split, 1));
  return std::clamp(std::min(useful, filling), 1u, kDecodeMaxBlocks / head_groups(shape));
}

uint64_t attention_decode_scratch(const AttentionShape& shape, uint32_t rows, uint32_t splits) {
  return static_cast<uint64_t>(rows) * shape.H * splits * (shape.hd + 2);
}

void attention_decode(const AttentionShape& shape, const __half* q, const KvView& kv, const uint32_t* positions,
                      const uint32_t* sequences, uint32_t rows, float* out, uint32_t splits, float* partial,
                      uint32_t* counters, const Launch& how) {
  check_shape(shape);
  check_cache(kv);
  CARAT_CHECK(rows <= 65535);  // a limit of the launch grid
  CARAT_CHECK(splits > 0 && splits * head_groups(shape) <= kDecodeMaxBlocks);
  // Outputs first: they are read 16 bytes at a time, and hd is a multiple of 16.
  auto* stats = reinterpret_cast<float2*>(partial + static_cast<uint64_t>(rows) * shape.H * splits * shape.hd);
  const DecodeArguments arguments{shape, q, kv, positions, sequences, out, partial, stats, counters};
  if (shape.hd <= 128) {
    launch_decode_128(arguments, rows, splits, how);
  } else if (shape.hd <= 256) {
    launch_decode_256(arguments, rows, splits, how);
  } else {
    launch_decode_512(arguments, rows, splits, how);
  }
}

}  // namespace carat::cuda
