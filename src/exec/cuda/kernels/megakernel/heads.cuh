#pragma once

// Device code: what both kinds of attention of the token kernel share: the call, the queries and the token's own key
// and value, and how results are handed on.
#include "exec/cuda/kernels/attention/attention_config.h"
#include "exec/cuda/kernels/megakernel/residual.cuh"

namespace carat::cuda {

inline constexpr uint32_t kTileKeys = kMegakernelTile;
inline constexpr uint32_t kKeySteps = kTileKeys / 16;     // of a product with values
inline constexpr uint32_t kChanceStride = kTileKeys + 8;  // halves
inline constexpr uint32_t kKeyWarp = 8, kValueWarp = 9;   // that make the token's own key and value

// Two neighbouring values in one store.
__device__ __forceinline__ void publish_two(Tagged* at, float first, float second, uint32_t tag) {
  const uint64_t high = static_cast<uint64_t>(tag) << 32;
  store_words(at, make_ulonglong2(high | __float_as_uint(first), high | __float_as_uint(second)));
}
__device__ __forceinline__ bool both_have(const ulonglong2& two, uint32_t tag) {
  return static_cast<uint32_t>(two.x >> 32) == tag && static_cast<uint32_t>(two.y >> 32) == tag;
}

// A share's largest score (times log2(e)) and sum, of head `head`.
__device__ __forceinline__ void publish_stats(const MegakernelAttention& a, uint32_t head, uint32_t split,
                                              float largest, float sum, uint32_t tag) {
  publish_two(a.stats + (static_cast<uint64_t>(head) * a.most_splits + split) * 2, largest, sum, tag);
}

// Where results go: all of a head's, or this block's share of them for the next stage to put together.
struct AttentionResults {
  TaggedWord* out;  // of the block's first head
  TaggedQuad* partial;
  uint32_t stride, tag;
  bool whole;  // nothing to put together: it is what the next stage would publish
  __device__ AttentionResults(const MegakernelAttention& a, const AttentionShare& share, uint32_t serial) {
    const uint64_t quad = share.kv_head * share.group * (a.shape.hd / 4);
    whole = share.splits == 1;
    out = a.out + 4 * quad;
    partial = a.partial + quad * a.most_splits + share.split;
    stride = a.most_splits;
    tag = version_tag(serial, a.version);
  }
  // Four neighbouring dimensions.
  __device__ void publish_quad(uint32_t quad, const float4& v) const {
    if (whole) {
      publish4(out + 4 * quad, v, tag);
    } else {
      publish4(partial + static_cast<uint64_t>(quad) * stride, v, tag);
    }
  }
};

// Queries to shared memory, kQueryRow bytes apart, and the token's own key and value.
template <int kHd, uint32_t kQueryRow>
struct MegakernelHeads {
  const MegakernelAttention& a;
  const AttentionShare& share;
  const MegakernelShared& shared;
  unsigned char* queries;
  __half *newest_key, *newest_value;
  bool newest;  // this block makes them
  uint32_t warp, lane;

  // Head `index` of the QKV product, normalised and (unless it is a value) rotated, to `to` and, unless it is null, to
  // `copy`. A lane holds pairs of dimensions (j, j + hd / 2), four neighbouring ones at a time. Weights and angles are
  // there before the head is; the norm's factor, which takes longest, comes last. `meanwhile` is called once it has
  // been asked for.
  template <typename Meanwhile>
  __device__ void head(uint32_t index, const float* norm, bool rotate, __half* to, __half* copy,
                       const Meanwhile& meanwhile) const {
    const uint32_t tag = version_tag(shared.serial, a.qkv_version);
    constexpr int kRuns = kHd / 256;
    const auto column = [&](int i) { return 4 * lane + 128 * (i / 2) + i % 2 * (kHd / 2); };
    float4 weight[2 * kRuns];
    float2 turn[kRuns][4];
#pragma unroll
    for (int i = 0; i < 2 * kRuns; ++i) {
      weight[i] = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
      if (rotate) weight[i] = *reinterpret_cast<const float4*>(norm + column(i));
    }
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t j = column(2 * i) + e;
        turn[i][e] = make_float2(1.0f, 0.0f);
        if (rotate && j < a.pairs) turn[i][e] = shared.turns[a.first_pair + j];
      }
    }
    FourWords words[2 * kRuns];
    const auto ask = [&] {
#pragma unroll
      for (int i = 0; i < 2 * kRuns; ++i) words[i] = load4_tagged(a.qkv + index * kHd + column(i));
    };
    const auto there = [&] {
      bool all = true;
#pragma unroll
      for (int i = 0; i < 2 * kRuns; ++i) all = all && words[i].have(tag);
      return all;
    };
    ask();
    meanwhile();
    while (!there()) ask();
    __syncwarp();
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * kRuns; ++i) squares += dot4(words[i].values());
    const float factor = rsqrt_fast(warp_sum(squares) * (1.0f / kHd) + shared.eps);
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const float4 first = scaled(words[2 * i].values(), 1.0f, weight[2 * i]);
      const float4 second = scaled(words[2 * i + 1].values(), 1.0f, weight[2 * i + 1]);
      const float l[4] = {first.x, first.y, first.z, first.w}, h[4] = {second.x, second.y, second.z, second.w};
      float low[4], high[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        low[e] = (l[e] * turn[i][e].x - h[e] * turn[i][e].y) * factor;
        high[e] = (l[e] * turn[i][e].y + h[e] * turn[i][e].x) * factor;
      }
      const uint2 lows = make_uint2(pack_half2(low[0], low[1]), pack_half2(low[2], low[3]));
      const uint2 highs = make_uint2(pack_half2(high[0], high[1]), pack_half2(high[2], high[3]));
      const uint32_t j = column(2 * i);
      *reinterpret_cast<uint2*>(to + j) = lows;
      *reinterpret_cast<uint2*>(to + kHd / 2 + j) = highs;
      if (copy == nullptr) continue;
      *reinterpret_cast<uint2*>(copy + j) = lows;
      *reinterpret_cast<uint2*>(copy + kHd / 2 + j) = highs;
    }
  }

  __device__ bool makes_key() const { return newest && warp == kKeyWarp; }
  __device__ bool makes_value() const { return newest && warp == kValueWarp; }

  // The token's own key or value, which also goes to the cache.
  template <typename Meanwhile>
  __device__ void own_head(const Meanwhile& meanwhile) const {
    const bool value = makes_value();
    const uint32_t index = a.shape.H + (value && !a.v_from_k ? a.shape.Hkv : 0) + share.kv_head;
    const KvHead cached(a.shape, shared.sequence, share.kv_head);
    __half* copy = kv_halves(a.kv, cached, kHd).newest_row(value, share.visible);
    head(index, a.k_norm, !value, value ? newest_value : newest_key, copy, meanwhile);
  }
  template <typename Meanwhile>
  __device__ void query_head(uint32_t query, const Meanwhile& meanwhile) const {
    head(share.kv_head * share.group + query, a.q_norm, true, reinterpret_cast<__half*>(queries + query * kQueryRow),
         nullptr, meanwhile);
  }

  // `meanwhile`: what every warp does while its head is on its way.
  template <typename Meanwhile>
  __device__ void prepare(const Meanwhile& meanwhile) const {
    if (makes_key() || makes_value()) return own_head(meanwhile);
    // The other warps take queries, in order, and a second one where warps run out.
    uint32_t query = newest && warp > kValueWarp ? warp - 2 : warp;
    if (query >= share.group) return meanwhile();
    query_head(query, meanwhile);
    query += newest ? kMegakernelWarps - 2 : kMegakernelWarps;
    if (query < share.group) query_head(query, [] {});
  }
};

// Shares of four neighbouring dimensions of a head put together, as far as a lane has come.
struct CombinedShares {
  float largest = -INFINITY, sum = 0.0f;
  float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

  // Takes kSkinny shares, 32 apart, from `first` on, as far as there are so many; one at least.
  template <int kSkinny>
  __device__ void add(const TaggedQuad* shares, const Tagged* stats, uint32_t first, uint32_t splits, uint32_t tag) {
    QuadWord share[kSkinny];
    ulonglong2 stat[kSkinny];
    // Where there are no more, the first is asked for again and left out.
    const auto at = [&](int i) { return first + 32 * i < splits ? first + 32 * i : first; };
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kSkinny; ++i) {
        share[i] = load4_tagged(shares + at(i));
        stat[i] = load_two_words(stats + at(i) * 2);
      }
#pragma unroll
      for (int i = 0; i < kSkinny; ++i) ready = ready && share[i].has(tag) && both_have(stat[i], tag);
    } while (!ready);
#pragma unroll
    for (int i = 0; i < kSkinny; ++i) {
      const bool counts = first + 32 * i < splits;
      const float share_max = counts ? __uint_as_float(static_cast<uint32_t>(stat[i].x)) : -INFINITY;
      const float share_sum = __uint_as_float(static_cast<uint32_t>(stat[i].y));
      const float4 v = share[i].values();
      const float now = fmaxf(largest, share_max);
      const float keep = exp2_fast(largest - now), take = exp2_fast(share_max - now);
      sum = sum * keep + share_sum * take;
      total = make_float4(total.x * keep + v.x * take, total.y * keep + v.y * take, total.z * keep + v.z * take,
                          total.w * keep + v.w * take);
      largest = now;
    }
  }

  // Lane 0 gets what lanes [0, splits) have.
  __device__ void gather(uint32_t splits) {
    float overall = largest;
#pragma unroll
    for (uint32_t offset = 16; offset > 0; offset /= 2) {
      if (offset < splits) overall = fmaxf(overall, __shfl_xor_sync(0xffffffffu, overall, offset));
    }
    const float factor = exp2_fast(largest - overall);  // 0 for lanes without a share
    sum *= factor;
    total = make_float4(total.x * factor, total.y * factor, total.z * factor, total.w * factor);
#pragma unroll
    for (uint32_t offset = 16; offset > 0; offset /= 2) {
      if (offset >= splits) continue;
      const auto other = [&](float v) { return __shfl_xor_sync(0xffffffffu, v, offset); };
      sum += other(sum);
      total = sum_of(total, make_float4(other(total.x), other(total.y), other(total.z), other(total.w)));
    }
  }
};

// The stage after attention puts the shares of all blocks together: a warp takes four neighbouring dimensions of a
// head, its lanes the shares.
inline __device__ __noinline__ void combine_shares(uint32_t stage) {
  const MegakernelShared& shared = megakernel_shared();
  const MegakernelAttention& a = shared.window[stage].stage.attention;
  const uint32_t splits = shared.window[stage].share.splits;
  if (splits == 1) return;    // done before
  constexpr int kSkinny = 3;  // shares a lane asks for at once where there are many
  const uint32_t tag = version_tag(shared.serial, a.version), lane = threadIdx.x % 32, head_quads = a.shape.hd / 4;
  const uint32_t quads = a.shape.H * head_quads;
#pragma unroll 1
  for (uint32_t q = blockIdx.x + gridDim.x * (threadIdx.x / 32); q < quads; q += gridDim.x * kMegakernelWarps) {
    const TaggedQuad* shares = a.partial + static_cast<uint64_t>(q) * a.most_splits;
    const Tagged* stats = a.stats + static_cast<uint64_t>(q / head_quads) * a.most_splits * 2;
    CombinedShares combined;
    if (splits <= 32) {
      if (lane < splits) combined.add<1>(shares, stats, lane, splits, tag);
    } else {
#pragma unroll 1
      for (uint32_t first = lane; first < splits; first += 32 * kSkinny) {
        combined.add<kSkinny>(shares, stats, first, splits, tag);
      }
    }
    __syncwarp();
    combined.gather(splits);
    if (lane == 0) {
      const float scale = 1.0f / combined.sum;
      const float4 v = combined.total;
      publish4(a.out + 4 * q, make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale), tag);
    }
  }
}

}  // namespace carat::cuda
