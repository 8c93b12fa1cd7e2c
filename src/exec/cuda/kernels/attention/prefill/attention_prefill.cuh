#pragma once

// Attention of prompt chunks. One block per tile of query rows and KV head; the tile's rows are (query, head) pairs of
// the query heads that share the KV head, so that each key tile is read once for all of them. Only key tiles inside the
// union of the rows' causal (and window) ranges are visited, and only those at its edges are masked.
//
// Bound by tensor cores and shared-memory reads: 4 hd operations per visible (query, head, key).
#include "exec/cuda/kernels/attention/attention_launch.h"
#include "exec/cuda/kernels/attention/attention_tile.cuh"

namespace carat::cuda {

template <AttentionTile T>
__device__ __forceinline__ void load_query_tile(const PrefillArguments& a, const Segment& segment, uint32_t kv_head,
                                                uint32_t queries) {
  using L = AttentionLayout<T>;
  const uint32_t chunk = threadIdx.x % L::kChunks;
#pragma unroll 4
  for (uint32_t row = threadIdx.x / L::kChunks; row < T.bm; row += L::kThreads / L::kChunks) {
    const QueryOfRow from(a.shape, segment, kv_head, row);
    const bool valid = from.query < segment.count && chunk * 8 < a.shape.hd;
    copy_async(queries + chunk_offset<T.hd>(row, chunk), a.q + (valid ? from.offset + chunk * 8 : 0), valid);
  }
}

// Divides by the row sums and writes bf16. The rows pass through the place of the queries, which every warp of the row
// has finished reading, to leave as whole 16-byte pieces.
template <AttentionTile T>
__device__ __forceinline__ void store_output_tile(const PrefillArguments& a, const Segment& segment, uint32_t kv_head,
                                                  uint32_t staging, AttentionRows<T>& rows) {
  using L = AttentionLayout<T>;
  rows.total_sums();
#pragma unroll
  for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = rows.row_sum[r][h] > 0.0f ? 1.0f / rows.row_sum[r][h] : 0.0f;
#pragma unroll
      for (int c = 0; c < L::kColumnTiles; ++c) {
        const __nv_bfloat162 pair =
            __floats2bfloat162_rn(rows.o[r][c][2 * h] * factor, rows.o[r][c][2 * h + 1] * factor);
        const uint32_t column = rows.column(c);
        store_shared(staging + chunk_offset<T.hd>(rows.row(r, h), column / 8) + column % 8 * 2,
                     *reinterpret_cast<const uint32_t*>(&pair));
      }
    }
  }
  rows.group_barrier();

  constexpr uint32_t kGroupThreads = 32 * T.warps_n;
#pragma unroll 4
  for (uint32_t i = threadIdx.x % kGroupThreads; i < L::kRowTiles * 16 * L::kChunks; i += kGroupThreads) {
    const uint32_t row = rows.first_row() + i / L::kChunks, chunk = i % L::kChunks;
    const QueryOfRow to(a.shape, segment, kv_head, row);
    if (to.query < segment.count && chunk * 8 < a.shape.hd) {
      *reinterpret_cast<uint4*>(a.out + to.offset + chunk * 8) =
          load_shared_16(staging + chunk_offset<T.hd>(row, chunk));
    }
  }
}

// Positions of the tile's rows that are the same for all threads.
template <AttentionTile T>
__device__ __forceinline__ RowPositions<T> positions_of(const AttentionShape& shape, const Segment& segment) {
  RowPositions<T> rows;
  rows.lowest = segment.position;
  rows.highest = segment.position + segment.count - 1;
  rows.span = visible_span(shape.window);
  return rows;
}

// One tile of query rows and KV head over `keys`.
template <AttentionTile T, typename Keys>
__device__ __forceinline__ void attend_tile(const PrefillArguments& a, const Segment& segment, uint32_t kv_head,
                                            RowPositions<T>& rows, const Keys& keys, uint8_t* shared_memory) {
  using L = AttentionLayout<T>;
  const uint32_t shared = shared_address(shared_memory);
  load_query_tile<T>(a, segment, kv_head, shared + L::kQueryOffset);
  RingOf<T, Keys> ring(shared, a.kv, KvHead(a.shape, segment.sequence, kv_head), a.shape.hd, keys);
  ring.start();

  AttentionRows<T> tile(shared, reinterpret_cast<float*>(shared_memory + L::kMaximaOffset));
  const uint32_t group = a.shape.H / a.shape.Hkv;
#pragma unroll
  for (int r = 0; r < L::kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Rows beyond the segment repeat its last position; nothing is stored for them.
      rows.position[r][h] = min(rows.lowest + tile.row(r, h) / group, rows.highest);
    }
  }
  tile.attend(ring, SharedQueries<T>(shared + L::kQueryOffset, tile.first_row()), keys, rows);
  store_output_tile<T>(a, segment, kv_head, shared + L::kQueryOffset, tile);
}

template <typename Choice>
__global__ void __launch_bounds__(AttentionLayout<Choice::kTile>::kThreads, 1)
    attention_prefill_kernel(const __grid_constant__ PrefillArguments a) {
  constexpr AttentionTile T = Choice::kTile;
  CARAT_BLOCK_MEMORY(1024, uint8_t, shared_memory);
  wait_for_predecessor();
  release_successor();

  // Later tiles of a prompt see more keys: they go first, so that the last blocks to run are short.
  const uint32_t kv_head = blockIdx.x % a.shape.Hkv;
  const Segment segment = a.tiles[a.tile_count - 1 - blockIdx.x / a.shape.Hkv];
  if (segment.count == 0) return;

  RowPositions<T> rows = positions_of<T>(a.shape, segment);
  KeyRange range;
  range.begin = rows.lowest > rows.span ? rows.lowest - rows.span : 0;
  range.end = rows.highest + 1;
  range.first_tile = range.begin / T.bn;
  range.tiles = rows.highest / T.bn - range.first_tile + 1;
  attend_tile<T>(a, segment, kv_head, rows, range, shared_memory);
}

template <typename Choice>
void launch_prefill_tile(const PrefillArguments& arguments, const LaunchConfig& launch) {
  using L = AttentionLayout<Choice::kTile>;
  const auto kernel = attention_prefill_kernel<Choice>;
  allow_shared_memory(kernel, L::kSharedBytes, "prompt attention");
  launch_kernel("prompt attention", kernel, dim3(arguments.tile_count * arguments.shape.Hkv), dim3(L::kThreads),
                L::kSharedBytes, launch, arguments);
}

}  // namespace carat::cuda
