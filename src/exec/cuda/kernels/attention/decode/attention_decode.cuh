#pragma once

// Attention of single queries against long caches. Grid (splits, KV heads x 16-head groups, rows): a block takes up to
// 16 query heads that share a KV head as the rows of one tensor-core tile, and a share of the key tiles that the row's
// position and window make visible. How many blocks are in use is computed on the device; the rest leave at once.
//
// Bound by the bytes of the visible keys and values; two blocks on an SM keep four tiles (128 KB) in flight.
#include "exec/cuda/kernels/attention/attention_combine.cuh"
#include "exec/cuda/kernels/attention/attention_launch.h"
#include "exec/cuda/kernels/attention/attention_tile.cuh"

namespace carat::cuda {

// Heads [first, first + count) of the query row, all of one KV head.
struct HeadGroup {
  uint32_t first;
  uint32_t count;
};

template <AttentionTile T>
__device__ __forceinline__ void load_heads(const __half* q, const HeadGroup& heads, uint32_t hd, uint32_t queries) {
  using L = AttentionLayout<T>;
  const uint32_t chunk = threadIdx.x % L::kChunks;
#pragma unroll
  for (uint32_t row = threadIdx.x / L::kChunks; row < T.bm; row += L::kThreads / L::kChunks) {
    const bool valid = row < heads.count && chunk * 8 < hd;
    copy_async(queries + chunk_offset<T.hd>(row, chunk), q + (valid ? (heads.first + row) * hd + chunk * 8 : 0), valid);
  }
}

// The tiles of block `split` when `blocks` blocks share `range`.
__device__ __forceinline__ KeyRange share_of(const KeyRange& range, uint32_t split, uint32_t blocks) {
  const uint32_t first = range.tiles * split / blocks, last = range.tiles * (split + 1) / blocks;
  return {range.begin, range.end, range.first_tile + first, last - first};
}

__device__ __forceinline__ void store_pair(float* to, float a, float b) {
  *reinterpret_cast<float2*>(to) = make_float2(a, b);
}
__device__ __forceinline__ void store_pair(__nv_bfloat16* to, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(a, b);
}

// Writes hd values per head at `out` + head * stride, times `factor` of the row.
template <AttentionTile T, typename Out>
__device__ __forceinline__ void store_heads(const AttentionRows<T>& rows, const float (&factor)[2],
                                            const HeadGroup& heads, uint32_t hd, Out* out, uint64_t stride) {
  using L = AttentionLayout<T>;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t row = rows.row(0, h);
    if (row >= heads.count) continue;
    Out* to = out + (heads.first + row) * stride;
#pragma unroll
    for (int c = 0; c < L::kColumnTiles; ++c) {
      const uint32_t column = rows.column(c);
      if (column < hd) {
        store_pair(to + column, rows.o[0][c][2 * h] * factor[h], rows.o[0][c][2 * h + 1] * factor[h]);
      }
    }
  }
}

// Queries that are [rows, H, hd] in fp16, normalised and rotated; the keys and values of all rows are in the cache.
struct ReadyHeads {
  static constexpr bool kReady = true;
  const __half* q;
};

// Heads: ReadyHeads, or the projections they are made of (attention_step.cuh).
template <typename Choice, typename Heads>
__global__ void __launch_bounds__(AttentionLayout<Choice::kTile>::kThreads, 2)
    attention_decode_kernel(const __grid_constant__ DecodeArguments a, const __grid_constant__ Heads source) {
  constexpr AttentionTile T = Choice::kTile;
  using L = AttentionLayout<T>;
  CARAT_BLOCK_MEMORY(1024, uint8_t, shared_memory);
  const uint32_t shared = shared_address(shared_memory);
  if constexpr (Heads::kReady) {
    wait_for_predecessor();
    release_successor();
  }

  const uint32_t hd = a.shape.hd, splits = gridDim.x, row = blockIdx.z;
  const uint32_t group = a.shape.H / a.shape.Hkv, head_groups = gridDim.y / a.shape.Hkv;
  const uint32_t kv_head = blockIdx.y / head_groups, first_in_group = blockIdx.y % head_groups * 16;
  const HeadGroup heads{kv_head * group + first_in_group, min(group - first_in_group, 16u)};

  RowPositions<T> rows;
  rows.lowest = rows.highest = rows.position[0][0] = rows.position[0][1] = a.positions[row];
  rows.span = visible_span(a.shape.window);
  KeyRange all;
  all.begin = rows.lowest > rows.span ? rows.lowest - rows.span : 0;
  all.end = rows.lowest + 1;
  all.first_tile = all.begin / T.bn;
  all.tiles = rows.lowest / T.bn - all.first_tile + 1;
  const uint32_t blocks = min(splits, (all.tiles + kDecodeMinTiles<T> - 1) / kDecodeMinTiles<T>);
  if (blockIdx.x >= blocks) return;
  const KeyRange range = share_of(all, blockIdx.x, blocks);

  // The queries go to registers by way of the ring's last tile, which the ring fills only after its first barrier.
  const uint32_t queries = shared + (T.ring - 1) * L::kTileBytes;
  if constexpr (Heads::kReady) {
    load_heads<T>(source.q + static_cast<uint64_t>(row) * a.shape.H * hd, heads, hd, queries);
    copy_async_commit();
  }
  RingOf<T, KeyRange> ring(shared, a.kv, KvHead(a.shape, a.sequences[row], kv_head), hd, range);
  if constexpr (Heads::kReady) {
    ring.start();
    copy_async_wait<T.ring - 1>();
  } else {
    // What the row itself adds to the cache is in the last tile; all that was there before may be read at once.
    const bool newest = blockIdx.x + 1 == blocks && !source.job.only_q;
    const bool waits = newest && range.tiles == 1;
    if (!waits) ring.start();
    source.template clear<T>(queries);
    wait_for_predecessor();
    release_successor();
    source.template prepare<T>(row, kv_head, heads, newest, queries);
    if (waits) {
      __syncthreads();
      ring.start();
    }
  }
  __syncthreads();
  const QueriesOf<T> fragments(queries);

  float* maxima = reinterpret_cast<float*>(shared_memory + L::kMaximaOffset);
  AttentionRows<T> tile(shared, maxima);
  tile.attend(ring, fragments, range, rows);
  tile.total_sums();

  const uint64_t first_head = static_cast<uint64_t>(row) * a.shape.H;
  if (blocks == 1) {
    const float factor[2] = {1.0f / tile.row_sum[0][0], 1.0f / tile.row_sum[0][1]};
    if (a.out != nullptr) {
      store_heads<T>(tile, factor, heads, hd, a.out + first_head * hd, hd);
    } else {
      store_heads<T>(tile, factor, heads, hd, a.out_bf16 + first_head * hd, hd);
    }
    return;
  }
  const float one[2] = {1.0f, 1.0f};
  store_heads<T>(tile, one, heads, hd, a.outputs + (first_head * splits + blockIdx.x) * hd,
                 static_cast<uint64_t>(splits) * hd);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t r = tile.row(0, h);
    if (r < heads.count && threadIdx.x < 32 && threadIdx.x % 4 == 0) {
      a.stats[(first_head + heads.first + r) * splits + blockIdx.x] =
          make_float2(tile.row_max[0][h], tile.row_sum[0][h]);
    }
  }
  const uint64_t first_of_group = first_head + kv_head * group;
  const CombineJob job{a.outputs + first_of_group * splits * hd,
                       a.stats + first_of_group * splits,
                       a.out == nullptr ? nullptr : a.out + first_of_group * hd,
                       a.out == nullptr ? a.out_bf16 + first_of_group * hd : nullptr,
                       group,
                       splits,
                       hd,
                       blocks};
  // The ring is idle by now: its first word serves as the flag.
  combine_shares(job, a.counters + row * a.shape.Hkv + kv_head, blocks * head_groups,
                 reinterpret_cast<uint32_t*>(shared_memory));
}

template <typename Choice, typename Heads>
void launch_decode_tile(const DecodeArguments& arguments, const Heads& source, uint32_t rows, uint32_t splits,
                        const LaunchConfig& launch) {
  using L = AttentionLayout<Choice::kTile>;
  const uint32_t head_groups = (arguments.shape.H / arguments.shape.Hkv + 15) / 16;
  const auto kernel = attention_decode_kernel<Choice, Heads>;
  allow_shared_memory(kernel, L::kSharedBytes, "decode attention");
  prefer_shared_memory(kernel, "decode attention");
  launch_kernel("decode attention", kernel, dim3(splits, arguments.shape.Hkv * head_groups, rows), dim3(L::kThreads),
                L::kSharedBytes, launch, arguments, source);
}
template <typename Choice>
void launch_decode_tile(const DecodeArguments& arguments, uint32_t rows, uint32_t splits, const LaunchConfig& launch) {
  launch_decode_tile<Choice>(arguments, ReadyHeads{arguments.q}, rows, splits, launch);
}

}  // namespace carat::cuda
