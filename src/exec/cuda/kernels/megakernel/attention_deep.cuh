#pragma once

// Device code: attention of one token over many keys. Keys and values come through the ring of weights, ahead of their
// use and as fast as memory gives them; while they do, there is no room for weights of the next stages, which is why
// short caches are read by megakernel_attention.cuh. A tile is
//   its keys, then its values, each in slots of 8 or 16 rows of 512 halves (and 16 bytes between them, for the banks)
// Only visible rows are loaded. The warps of a block are of two kinds:
//   warp w < 8   keys 8 w ... of each tile: scores, their maximum and probabilities relative to it
//   warp 8 + w   an eighth of the dimensions, all 64 keys: the eight maxima give the factors of the probabilities, and
//                the product is that of transposed matrices, values times probabilities
// They meet at two pairs of barriers and may be two tiles apart. What belongs to heads that the group does not have is
// whatever lies in shared memory: heads do not mix, and nobody looks at theirs.
#include "exec/cuda/kernels/megakernel/heads.cuh"

namespace carat::cuda {

inline constexpr uint32_t kScoringWarps = 8;
// Barriers of the hardware, one of each kind for either buffer; 1 is compute_barrier().
inline constexpr int kChancesThere = 2, kChancesTaken = 4;

struct DeepAttentionShared {
  alignas(16) unsigned char q[kMegakernelMaxHeads *
                              megakernel_cache_row(kMegakernelDeepDims)];  // rows as those of the cache
  alignas(16) __half chance[2][kMegakernelMaxHeads][kChanceStride];
  alignas(16) float2 stats[2][kMegakernelMaxHeads][kScoringWarps];  // maximum of score * log2(e), sum of chances
  alignas(16) __half newest_key[kMegakernelDeepDims];               // the token's own
  alignas(16) __half newest_value[kMegakernelDeepDims];
};
static_assert(kTileKeys == 8 * kScoringWarps && sizeof(DeepAttentionShared) <= megakernel_attention_bytes());

// Lanes that differ in bits 2 and 3 transpose their values: value i of the k-th becomes value k of the i-th.
__device__ __forceinline__ void transpose_4(float (&v)[4]) {
  const auto exchange = [&](float& low, float& high, uint32_t mask) {
    const bool upper = (threadIdx.x & mask) != 0;
    const float other = __shfl_xor_sync(0xffffffffu, upper ? low : high, mask);
    (upper ? low : high) = other;
  };
  exchange(v[0], v[1], 4), exchange(v[2], v[3], 4);
  exchange(v[0], v[2], 8), exchange(v[1], v[3], 8);
}

// Over the four lanes that hold one row of a fragment.
__device__ __forceinline__ float row_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float row_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// kHeadTiles: groups of eight heads.
template <int kHeadTiles>
struct DeepAttentionBlock {
  static constexpr int kHd = kMegakernelDeepDims;
  static constexpr uint32_t kRow = megakernel_cache_row(kHd);  // bytes
  static constexpr int kWarpDims = kHd / 8;                    // of the output
  static constexpr int kDimTiles = kWarpDims / 16;

  // Of lane 4 g + t: dimensions g (twice) and g + 8 (twice) of 16, each of heads 2 t and 2 t + 1 of eight.
  using Output = float[kHeadTiles][kDimTiles][4];

  const MegakernelAttention& a;
  const AttentionShare& share;
  const MegakernelShared& shared;
  DeepAttentionShared& s;
  Ring ring;
  bool newest;  // the last tile has the token's own key, which this block makes
  uint32_t warp, lane;

  // --- slots: every warp walks all of them, and says of each that it needs it no more
  __device__ void wait_for(const RingPlace& place) const { mbarrier_wait(ring.full + place.slot * 8, place.parity); }
  __device__ void leave(RingPlace& place) const {
    __syncwarp();
    if (lane == 0) mbarrier_arrive(ring.empty + place.slot * 8);
    place.advance(shared.slot_count);
  }
  __device__ void pass(uint32_t last, RingPlace& place) const {
#pragma unroll 1
    for (uint32_t i = 0; i <= last >> a.slot_shift; ++i) {
      wait_for(place);
      leave(place);
    }
  }
  // Row `row` of a tile, in slot `slot`; the token's own was not in the cache yet when the others were loaded.
  __device__ uint32_t row_at(uint32_t tile, uint32_t row, uint32_t slot, const __half* own) const {
    if (newest && tile + 1 == share.end && row == share.newest % kTileKeys) return shared_address(own);
    return shared.slots_at + slot * shared.slot_bytes + (row & ((1u << a.slot_shift) - 1)) * kRow;
  }

  // --- warps that score
  // Scores of this warp's eight keys, in slot `slot`: a fragment of heads and keys.
  __device__ void score(uint32_t tile, uint32_t slot, float (&c)[4]) const {
    constexpr int kChains = kHd / 128;  // products that do not wait for one another
    float sums[kChains][4] = {};
    const uint32_t keys = row_at(tile, 8 * warp + lane % 8, slot, s.newest_key) + lane / 8 * 16;
    const uint32_t queries = shared_address(s.q) + lane % 8 * kRow + lane / 8 * 16;
#pragma unroll
    for (int j = 0; j < kHd / 32; ++j) {
      uint32_t k[4], q[4], q8[4] = {0, 0, 0, 0};
      load_matrices(k, keys + 64 * j);
      load_matrices(q, queries + 64 * j);
      if constexpr (kHeadTiles > 1) load_matrices(q8, queries + 8 * kRow + 64 * j);
      const uint32_t low[4] = {q[0], q8[0], q[1], q8[1]}, high[4] = {q[2], q8[2], q[3], q8[3]};
      multiply_add(sums[2 * j % kChains], low, k[0], k[1]);
      multiply_add(sums[(2 * j + 1) % kChains], high, k[2], k[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c[i] = sums[0][i];
#pragma unroll
      for (int chain = 1; chain < kChains; ++chain) c[i] += sums[chain][i];
    }
  }

  // Chances relative to the largest score of this warp's keys, for the warps that multiply values.
  __device__ void soften(const float (&c)[4], uint32_t tile, uint32_t buffer) const {
    const uint32_t g = lane / 4, t = lane % 4, at = tile * kTileKeys + 8 * warp + 2 * t;
    const bool sees[2] = {at <= share.newest, at < share.newest};
#pragma unroll
    for (uint32_t row = 0; row < kHeadTiles; ++row) {
      const uint32_t head = g + 8 * row;
      const float v0 = sees[0] ? c[2 * row] * kLog2E : -INFINITY, v1 = sees[1] ? c[2 * row + 1] * kLog2E : -INFINITY;
      const float largest = row_max(fmaxf(v0, v1));
      const float base = largest == -INFINITY ? 0.0f : largest;  // none is visible
      const float p0 = exp2_fast(v0 - base), p1 = exp2_fast(v1 - base);
      *reinterpret_cast<uint32_t*>(&s.chance[buffer][head][8 * warp + 2 * t]) = pack_half2(p0, p1);
      const float sum = row_sum(p0 + p1);
      if (t == 0) s.stats[buffer][head][warp] = make_float2(largest, sum);
    }
  }

  __device__ void score_tiles(RingPlace& place) const {
    const uint32_t mine = 8 * warp >> a.slot_shift;
#pragma unroll 1
    for (uint32_t tile = share.first; tile < share.end; ++tile) {
      const uint32_t buffer = (tile - share.first) % 2;
      const uint32_t last = last_row(share, tile);
      float c[4] = {};
#pragma unroll 1
      for (uint32_t chunk = 0; chunk <= last >> a.slot_shift; ++chunk) {
        wait_for(place);
        if (chunk == mine) score(tile, place.slot, c);
        leave(place);
      }
      if (tile >= share.first + 2) named_barrier<kMegakernelThreads>(kChancesTaken + buffer);
      soften(c, tile, buffer);
      named_barrier_arrive(kChancesThere + buffer);
      pass(last, place);
    }
  }

  // --- warps that multiply values
  // What is known of heads g and g + 8 so far.
  struct Rows {
    float largest[kHeadTiles], sum[kHeadTiles];
  };

  // Of heads 2 t + e, from the lanes that know them.
  __device__ float of_head(float of_row, int e) const {
    return __shfl_sync(0xffffffffu, of_row, 8 * (lane % 4) + 4 * e);
  }

  // Takes the scoring warps' maxima and makes the output so far relative to the new ones. factors: of the chances of
  // scoring warps 2 t and 2 t + 1.
  __device__ void rescale(uint32_t buffer, Rows& rows, uint32_t (&factors)[kHeadTiles], Output& out) const {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      const float4 stat = *reinterpret_cast<const float4*>(&s.stats[buffer][lane / 4 + 8 * h][2 * (lane % 4)]);
      const float now = fmaxf(rows.largest[h], row_max(fmaxf(stat.x, stat.z)));
      const float keep = exp2_fast(rows.largest[h] - now);
      factors[h] = pack_half2(exp2_fast(stat.x - now), exp2_fast(stat.z - now));
      // The sum of what the chances are multiplied with, not of what they should be.
      const float2 rounded = __half22float2(*reinterpret_cast<const __half2*>(&factors[h]));
      rows.sum[h] = rows.sum[h] * keep + row_sum(rounded.x * stat.y + rounded.y * stat.w);
      rows.largest[h] = now;
      const float keeps[2] = {of_head(keep, 0), of_head(keep, 1)};
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[h][d][i] *= keeps[i % 2];
      }
    }
  }

  __device__ static uint32_t times(uint32_t chances, uint32_t factor) {
    const __half2 product = __hmul2(*reinterpret_cast<__half2*>(&chances), *reinterpret_cast<__half2*>(&factor));
    return *reinterpret_cast<const uint32_t*>(&product);
  }

  // `place`: of the tile's first slot of values; left behind the last.
  __device__ void add_values(uint32_t tile, uint32_t last_visible, uint32_t buffer,
                             const uint32_t (&factors)[kHeadTiles], RingPlace& place, Output& out) const {
    const uint32_t g = lane / 4, t = lane % 4, last = last_visible >> a.slot_shift;
    const uint32_t first_slot = place.slot, dims = 2 * (warp - kScoringWarps) * kWarpDims + lane / 8 % 2 * 16;
    RingPlace ahead = place;
    uint32_t there = 0, done = 0;  // chunks
#pragma unroll
    for (uint32_t step = 0; step < kKeySteps; ++step) {
      if (16 * step > last_visible) continue;
      for (; there <= min(last, (16 * step + 15) >> a.slot_shift); ++there) {
        wait_for(ahead);
        ahead.advance(shared.slot_count);
      }
      uint32_t chance[kHeadTiles][2];
#pragma unroll
      for (int h = 0; h < kHeadTiles; ++h) {
        // Of the scoring warps whose keys these are: the first in the low half, the second in the high one.
        const uint32_t both = __shfl_sync(0xffffffffu, factors[h], (lane & ~3u) + step);
        const __half* p = &s.chance[buffer][g + 8 * h][16 * step + 2 * t];
        chance[h][0] = times(*reinterpret_cast<const uint32_t*>(p), __byte_perm(both, both, 0x1010));
        chance[h][1] = times(*reinterpret_cast<const uint32_t*>(p + 8), __byte_perm(both, both, 0x3232));
      }
      // Rows that were not loaded could be anything: another one stands in for them, times zero.
      const uint32_t row = min(16 * step + lane % 8 + lane / 16 * 8, last_visible);
      uint32_t slot = first_slot + (row >> a.slot_shift);
      while (slot >= shared.slot_count) slot -= shared.slot_count;
      const uint32_t values = row_at(tile, row, slot, s.newest_value) + dims;
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
        uint32_t v[4];
        load_matrices_transposed(v, values + 32 * d);
#pragma unroll
        for (int h = 0; h < kHeadTiles; ++h) multiply_add(out[h][d], v, chance[h][0], chance[h][1]);
      }
      for (; done < min(last + 1, 16 * (step + 1) >> a.slot_shift); ++done) leave(place);
    }
    for (; done <= last; ++done) leave(place);
  }

  __device__ void sum_tiles(RingPlace& place, Rows& rows, Output& out) const {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) rows.largest[h] = -INFINITY, rows.sum[h] = 0.0f;
#pragma unroll 1
    for (uint32_t tile = share.first; tile < share.end; ++tile) {
      const uint32_t buffer = (tile - share.first) % 2;
      const uint32_t last = last_row(share, tile);
      pass(last, place);
      named_barrier<kMegakernelThreads>(kChancesThere + buffer);
      uint32_t factors[kHeadTiles];
      rescale(buffer, rows, factors, out);
      add_values(tile, last, buffer, factors, place, out);
      if (tile + 2 < share.end) named_barrier_arrive(kChancesTaken + buffer);
    }
  }

  __device__ void hand_out(Output& out, const Rows& rows, const AttentionResults& results) const {
    // After the exchange a lane has four neighbouring dimensions of one head.
    const uint32_t g = lane / 4, dim = (warp - kScoringWarps) * kWarpDims + g % 4 / 2 * 8 + g / 4 * 4;
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      const uint32_t head = 8 * h + 2 * (lane % 4) + g % 2;
      const float sum = __shfl_sync(0xffffffffu, rows.sum[h], 8 * (lane % 4) + 4 * (g % 2));
      const float factor = results.whole ? 1.0f / sum : 1.0f;
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
        transpose_4(out[h][d]);
        const float(&v)[4] = out[h][d];
        if (head >= share.group) continue;
        results.publish_quad((head * kHd + dim) / 4 + 4 * d,
                             make_float4(v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor));
      }
    }
  }
};

// This block's share of an attention stage. A call of its own, as everything that happens once a stage.
template <int kHeadTiles>
__device__ __noinline__ void attend_deep(uint32_t stage) {
  MegakernelShared& shared = megakernel_shared();
  const WindowStage& now = shared.window[stage];
  using Block = DeepAttentionBlock<kHeadTiles>;
  const MegakernelAttention& a = now.stage.attention;
  const AttentionShare& share = now.share;
  auto& s = *reinterpret_cast<DeepAttentionShared*>(megakernel_region());
  const Block block{a,
                    share,
                    shared,
                    s,
                    Ring(shared.ring),
                    a.owns && share.split + 1 == share.splits,
                    threadIdx.x / 32,
                    threadIdx.x % 32};
  RingPlace place = place_at(shared.turn[block.warp].place, shared.slot_count, shared.slot_inverse);
  const MegakernelHeads<Block::kHd, Block::kRow> heads{
      a, share, shared, s.q, s.newest_key, s.newest_value, block.newest, block.warp, block.lane};
  heads.prepare([] {});
  compute_barrier();
  if (block.warp < kScoringWarps) {
    block.score_tiles(place);
    if (block.lane == 0) shared.turn[block.warp].place = place.index;
    return;
  }
  // Layers that share this cache read it from other SMs, after what these warps publish.
  if (a.lends && (heads.makes_key() || heads.makes_value())) __threadfence();
  typename Block::Rows rows;
  typename Block::Output out{};
  block.sum_tiles(place, rows, out);
  if (block.lane == 0) shared.turn[block.warp].place = place.index;
  const AttentionResults results(a, share, shared.serial);
  block.hand_out(out, rows, results);
  if (results.whole || block.warp != kScoringWarps || block.lane % 4 != 0) return;
#pragma unroll
  for (int h = 0; h < kHeadTiles; ++h) {
    const uint32_t head = block.lane / 4 + 8 * h;
    if (head >= share.group) continue;
    publish_stats(a, share.kv_head * share.group + head, share.split, rows.largest[h], rows.sum[h], results.tag);
  }
}

}  // namespace carat::cuda
