#pragma once

// Device code: attention of one token. The visible keys are cut into tiles of 64 positions; every KV head's tiles are
// dealt out to as many blocks as there are (or as the chip has for a head). A block takes the query heads of its KV
// head (at most 16) as the rows of tensor-core tiles:
//   scores   warp w: keys 8 (w / 2) ..., half w % 2 of the head's dimensions; K goes from memory to B fragments as it
//            lies, because the order of the dimensions does not matter as long as Q's is the same
//   softmax  warp h: head h
//   output   warp w: a sixteenth of the dimensions, all 64 keys; V's fragments are pairs of keys, put together from
//            two loads
// Where several blocks share a KV head, a second stage puts their results together.
#include "exec/cuda/kernels/token_residual.cuh"

namespace carat::cuda {

inline constexpr uint32_t kTileKeys = kTokenTile;
inline constexpr uint32_t kScoreStride = kTileKeys + 4;   // floats
inline constexpr uint32_t kChanceStride = kTileKeys + 8;  // halves
inline constexpr uint32_t kQueryPad = 32;                 // halves: neighbouring heads lie 64 bytes of banks apart
inline constexpr float kLog2E = 1.4426950408889634f;

struct TokenAttentionShared {
  __half* q;       // [16][hd + kQueryPad]
  float* scores;   // [2][16][kScoreStride]
  __half* chance;  // [16][kChanceStride]
  float* largest;  // [16]
  float* sum;      // [16]
  float* keep;     // [16]
  __half* newest;  // [512] the token's own key
};

__device__ __forceinline__ TokenAttentionShared attention_shared(unsigned char* region) {
  TokenAttentionShared s;
  s.q = reinterpret_cast<__half*>(region);
  s.scores = reinterpret_cast<float*>(s.q + kTokenMaxHeads * (512 + kQueryPad));
  s.chance = reinterpret_cast<__half*>(s.scores + 2 * kTokenMaxHeads * kScoreStride);
  s.largest = reinterpret_cast<float*>(s.chance + kTokenMaxHeads * kChanceStride);
  s.sum = s.largest + kTokenMaxHeads;
  s.keep = s.sum + kTokenMaxHeads;
  s.newest = reinterpret_cast<__half*>(s.keep + kTokenMaxHeads);
  return s;
}

__device__ __forceinline__ uint4 load_cache_16(const __half* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ uint2 load_cache_8(const __half* p) {
  uint2 v;
  asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
__device__ __forceinline__ uint32_t load_cache_4(const __half* p) {
  uint32_t v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

template <int kHd>
struct TokenAttentionBlock {
  static constexpr uint32_t kQueryStride = kHd + kQueryPad;
  static constexpr int kScoreChunks = kHd / 64;  // of 32 dimensions, of this warp's half
  static constexpr int kLaneDims = kHd / 128;    // consecutive dimensions of V a lane loads: 2 or 4
  static constexpr int kKeySteps = kTileKeys / 16;

  const TokenAttention& a;
  TokenAttentionShared s;
  const float2* turns;                      // rotation of this kind of layer
  uint32_t position, slot, kv_head, group;  // slot: of the position in the cache
  const __half* keys;                       // of this sequence and KV head
  const __half* values;
  float eps;
  uint32_t warp, lane;

  // Tiles before the position's lie before it, or at the end of the ring.
  __device__ uint64_t slot_offset(uint32_t tile) const {
    const uint32_t back = position - tile * kTileKeys;
    return static_cast<uint64_t>(slot >= back ? slot - back : slot + a.kv.slots - back) * kHd;
  }

  // Brings a tile's keys and values to the L2 cache ahead of their use.
  __device__ void prefetch(uint32_t tile) const {
    constexpr uint32_t kLines = kTileKeys * kHd * 2 / 128;
    for (uint32_t i = threadIdx.x; i < 2 * kLines; i += kTokenThreads) {
      const __half* from = (i < kLines ? keys : values) + slot_offset(tile);
      prefetch_l2(from + i % kLines * 64);
    }
  }

  __device__ void prefetch_values(uint32_t tile) const {
    constexpr uint32_t kLines = kTileKeys * kHd * 2 / 128;
    for (uint32_t i = threadIdx.x; i < kLines; i += kTokenThreads) prefetch_l2(values + slot_offset(tile) + i * 64);
  }

  // Head `index` of the QKV product, normalised and (unless it is a value) rotated. A lane holds pairs of dimensions
  // (j, j + hd / 2), four neighbouring ones at a time.
  __device__ void head(uint32_t index, const float* norm, bool rotate, uint32_t tag, __half* to, __half* copy) const {
    constexpr int kRuns = kHd / 256;
    float4 low[kRuns], high[kRuns];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint32_t j = 4 * lane + 128 * i;
      low[i] = await4(a.qkv + (index * kHd + j) / 4, tag);
      high[i] = await4(a.qkv + (index * kHd + kHd / 2 + j) / 4, tag);
      squares += dot4(low[i]) + dot4(high[i]);
    }
    const float factor = rsqrtf(warp_sum(squares) / static_cast<float>(kHd) + eps);
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint32_t j = 4 * lane + 128 * i;
      float l[4] = {low[i].x, low[i].y, low[i].z, low[i].w}, h[4] = {high[i].x, high[i].y, high[i].z, high[i].w};
      const float4 low_norm = *reinterpret_cast<const float4*>(norm + j);
      const float4 high_norm = *reinterpret_cast<const float4*>(norm + kHd / 2 + j);
      const float wl[4] = {low_norm.x, low_norm.y, low_norm.z, low_norm.w};
      const float wh[4] = {high_norm.x, high_norm.y, high_norm.z, high_norm.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        l[e] *= factor, h[e] *= factor;
        if (!rotate) continue;
        l[e] *= wl[e], h[e] *= wh[e];
        if (j + e >= a.pairs) continue;
        const float2 turn = turns[j + e];
        const float turned = l[e] * turn.x - h[e] * turn.y;
        h[e] = l[e] * turn.y + h[e] * turn.x;
        l[e] = turned;
      }
      const uint2 first = make_uint2(pack_half2(l[0], l[1]), pack_half2(l[2], l[3]));
      const uint2 second = make_uint2(pack_half2(h[0], h[1]), pack_half2(h[2], h[3]));
      *reinterpret_cast<uint2*>(to + j) = first;
      *reinterpret_cast<uint2*>(to + kHd / 2 + j) = second;
      if (copy == nullptr) continue;
      *reinterpret_cast<uint2*>(copy + j) = first;
      *reinterpret_cast<uint2*>(copy + kHd / 2 + j) = second;
    }
  }

  // Queries to shared memory; with `newest` the token's own key and value to the cache.
  __device__ void prepare(bool newest, uint32_t tag) const {
    const uint32_t extra = newest && a.owns ? 2 : 0;
#pragma unroll 1
    for (uint32_t i = warp; i < group + extra; i += kTokenWarps) {
      const bool is_query = i < group, is_value = i == group + 1;
      uint32_t index = kv_head * group + i;
      __half* to = s.q + i * kQueryStride;
      if (!is_query) {
        index = a.shape.H + (is_value && !a.v_from_k ? a.shape.Hkv : 0) + kv_head;
        to = const_cast<__half*>(is_value ? values : keys) + static_cast<uint64_t>(slot) * kHd;
      }
      head(index, is_query ? a.q_norm : a.k_norm, !is_value, tag, to, i == group ? s.newest : nullptr);
      if (!is_query) __threadfence();  // layers that share this cache read it from other SMs
    }
    // Rows of the tile without a head.
    for (uint32_t i = threadIdx.x; i < (kTokenMaxHeads - group) * kQueryStride / 8; i += kTokenThreads) {
      reinterpret_cast<uint4*>(s.q + group * kQueryStride)[i] = make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x < kTokenMaxHeads) {
      s.largest[threadIdx.x] = -INFINITY;
      s.sum[threadIdx.x] = 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < kTokenMaxHeads * kChanceStride; i += kTokenThreads)
      s.chance[i] = __ushort_as_half(0);
  }

  using Keys = uint4[kScoreChunks];
  using Values = uint32_t[kKeySteps][4][kLaneDims / 2];  // keys 2t, 2t + 1, 2t + 8, 2t + 9 of each step

  __device__ void load_keys(uint32_t tile, Keys& k) const {
    const uint32_t row = warp / 2 * 8 + lane / 4;
    const __half* key = keys + slot_offset(tile) + row * kHd + warp % 2 * (kHd / 2) + 8 * (lane % 4);
#pragma unroll
    for (int j = 0; j < kScoreChunks; ++j) k[j] = load_cache_16(key + 32 * j);
  }
  // The token's own key, which was not in the cache yet when the others were loaded.
  __device__ void take_newest(Keys& k) const {
    if (warp / 2 * 8 + lane / 4 != position % kTileKeys) return;
#pragma unroll
    for (int j = 0; j < kScoreChunks; ++j) {
      k[j] = *reinterpret_cast<const uint4*>(s.newest + warp % 2 * (kHd / 2) + 8 * (lane % 4) + 32 * j);
    }
  }

  __device__ void load_values(uint32_t tile, Values& v) const {
    const __half* value = values + slot_offset(tile) + warp * (kHd / 16) + lane / 4 * kLaneDims;
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __half* from = value + (16 * step + 2 * (lane % 4) + (i & 1) + 8 * (i / 2)) * kHd;
        if constexpr (kLaneDims == 2) {
          v[step][i][0] = load_cache_4(from);
        } else {
          const uint2 both = load_cache_8(from);
          v[step][i][0] = both.x, v[step][i][1] = both.y;
        }
      }
    }
  }

  __device__ void score(const Keys& k) const {
    const uint32_t g = lane / 4, t = lane % 4, first_dim = warp % 2 * (kHd / 2) + 8 * t;
    float c[4] = {};
#pragma unroll
    for (int j = 0; j < kScoreChunks; ++j) {
      const uint4 q = *reinterpret_cast<const uint4*>(s.q + g * kQueryStride + first_dim + 32 * j);
      uint4 q8 = make_uint4(0, 0, 0, 0);
      if (group > 8) q8 = *reinterpret_cast<const uint4*>(s.q + (g + 8) * kQueryStride + first_dim + 32 * j);
      const uint32_t first[4] = {q.x, q8.x, q.y, q8.y}, second[4] = {q.z, q8.z, q.w, q8.w};
      multiply_add(c, first, k[j].x, k[j].y);
      multiply_add(c, second, k[j].z, k[j].w);
    }
    float* to = s.scores + (warp % 2 * kTokenMaxHeads + g) * kScoreStride + warp / 2 * 8 + 2 * t;
    *reinterpret_cast<float2*>(to) = make_float2(c[0], c[1]);
    *reinterpret_cast<float2*>(to + 8 * kScoreStride) = make_float2(c[2], c[3]);
  }

  __device__ void soften(uint32_t tile, uint32_t begin) const {
    if (warp >= group) return;
    float v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t key = lane + 32 * i, at = tile * kTileKeys + key;
      const float score = s.scores[warp * kScoreStride + key] + s.scores[(kTokenMaxHeads + warp) * kScoreStride + key];
      v[i] = at >= begin && at <= position ? score * kLog2E : -INFINITY;
    }
    float largest = fmaxf(v[0], v[1]);
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    const float before = s.largest[warp], now = fmaxf(before, largest);
    const float p0 = exp2_fast(v[0] - now), p1 = exp2_fast(v[1] - now);
    const float total = warp_sum(p0 + p1);
    s.chance[warp * kChanceStride + lane] = __float2half_rn(p0);
    s.chance[warp * kChanceStride + lane + 32] = __float2half_rn(p1);
    __syncwarp();
    if (lane == 0) {
      const float keep = exp2_fast(before - now);
      s.keep[warp] = keep;
      s.sum[warp] = s.sum[warp] * keep + total;
      s.largest[warp] = now;
    }
  }

  using Fragment = float[kLaneDims][4];

  __device__ void add_values(const Values& v, Fragment& out) const {
    const uint32_t g = lane / 4, t = lane % 4;
    const float keep[2] = {s.keep[g], group > 8 ? s.keep[g + 8] : 1.0f};
#pragma unroll
    for (int j = 0; j < kLaneDims; ++j) {
      out[j][0] *= keep[0], out[j][1] *= keep[0];
      out[j][2] *= keep[1], out[j][3] *= keep[1];
    }
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
      const __half* p = s.chance + g * kChanceStride + 16 * step + 2 * t;
      const auto pair = [](const __half* at) { return *reinterpret_cast<const uint32_t*>(at); };
      uint32_t chance[4] = {pair(p), 0, pair(p + 8), 0};
      if (group > 8) chance[1] = pair(p + 8 * kChanceStride), chance[3] = pair(p + 8 * kChanceStride + 8);
#pragma unroll
      for (int j = 0; j < kLaneDims; ++j) {
        const uint32_t half = j % 2 == 0 ? 0x5410u : 0x7632u;
        multiply_add(out[j], chance, __byte_perm(v[step][0][j / 2], v[step][1][j / 2], half),
                     __byte_perm(v[step][2][j / 2], v[step][3][j / 2], half));
      }
    }
  }

  // Column n of out[j] is dimension n * kLaneDims + j of the warp's, and a lane holds columns 2 t and 2 t + 1.
  // to: the first head's; heads are `stride` quads apart.
  __device__ void hand_out(const Fragment& out, TaggedQuad* to, uint32_t stride, bool divide, uint32_t tag) const {
    const uint32_t g = lane / 4, dim = warp * (kHd / 16) + lane % 4 * 2 * kLaneDims;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint32_t head_of_group = g + 8 * row;
      if (head_of_group >= group) continue;
      const float factor = divide ? 1.0f / s.sum[head_of_group] : 1.0f;
      const auto value = [&](int i) { return out[i % kLaneDims][2 * row + i / kLaneDims] * factor; };
#pragma unroll
      for (int q = 0; q < kLaneDims / 2; ++q) {
        publish4(to + static_cast<uint64_t>(head_of_group) * stride + dim / 4 + q,
                 make_float4(value(4 * q), value(4 * q + 1), value(4 * q + 2), value(4 * q + 3)), tag);
      }
    }
  }
};

// A call of its own, so that what it keeps in registers does not push the state of the weights in flight out of them.
template <int kHd>
__device__ __noinline__ void attend(const TokenAttention& a, const AttentionShare& share, const TokenJob& job,
                                    unsigned char* region, const float2* turns, uint32_t position, uint32_t sequence,
                                    uint32_t serial, uint32_t number) {
  if (share.split >= share.splits) return;
  const uint32_t kv_head = share.kv_head, split = share.split, first = share.first, end = share.end;
  const uint64_t plane = static_cast<uint64_t>(sequence * a.shape.Hkv + kv_head) * a.kv.slots * kHd;
  const TokenAttentionBlock<kHd> block{
      a,           attention_shared(region), turns,          position, share.slot,       kv_head,
      share.group, a.kv.k + plane,           a.kv.v + plane, job.eps,  threadIdx.x / 32, threadIdx.x % 32};
  // The first tile's keys are on their way while the queries are waited for; the token's own follows.
  const bool newest = split + 1 == share.splits;
  constexpr bool kEarly = kHd == 256;  // larger heads' keys would not fit the registers
  typename TokenAttentionBlock<kHd>::Keys k;
  if constexpr (kEarly) {
    block.load_keys(first, k);
    block.prefetch_values(first);
  } else {
    block.prefetch(first);
  }
  block.prepare(newest, stage_tag(serial, a.qkv_stage));
  typename TokenAttentionBlock<kHd>::Fragment out{};
  token_barrier();
#pragma unroll 1
  for (uint32_t tile = first; tile < end; ++tile) {
    typename TokenAttentionBlock<kHd>::Values v;
    if (!kEarly || tile > first) {
      block.load_keys(tile, k);
    }
    if (kEarly && newest && a.owns && tile + 1 == end) block.take_newest(k);
    if (tile + 1 < end) block.prefetch(tile + 1);
    block.score(k);
    block.load_values(tile, v);
    token_barrier();
    block.soften(tile, share.begin);
    token_barrier();
    block.add_values(v, out);
    // The next tile's scores are not read, nor its chances written, before the barrier between them.
  }
  const uint32_t tag = stage_tag(serial, number), first_head = kv_head * block.group;
  // With a single share there is nothing to put together: it is what the next stage would publish.
  const bool whole = share.splits == 1;
  TaggedQuad* to = whole ? a.out + first_head * (kHd / 4)
                         : a.partial + (static_cast<uint64_t>(first_head) * a.most_splits + split) * (kHd / 4);
  block.hand_out(out, to, (whole ? 1 : a.most_splits) * (kHd / 4), whole, whole ? tag + 1 : tag);
  if (!whole && threadIdx.x < block.group) {
    Tagged* stats = a.stats + (static_cast<uint64_t>(first_head + threadIdx.x) * a.most_splits + split) * 2;
    publish(stats, block.s.largest[threadIdx.x], tag);
    publish(stats + 1, block.s.sum[threadIdx.x], tag);
  }
}

// The stage after attention, number `number`, puts the shares of all blocks together: a warp takes four neighbouring
// dimensions of a head, its lanes the shares.
__device__ __forceinline__ void combine_attention(const TokenAttention& a, const AttentionShare& keys, uint32_t serial,
                                                  uint32_t number) {
  if (keys.splits == 1) return;
  const uint32_t tag = stage_tag(serial, number - 1), lane = threadIdx.x % 32, hd = a.shape.hd;
  const uint32_t quads = a.shape.H * hd / 4;
#pragma unroll 1
  for (uint32_t q = blockIdx.x + gridDim.x * (threadIdx.x / 32); q < quads; q += gridDim.x * kTokenWarps) {
    const uint32_t head = 4 * q / hd, dim = 4 * q % hd;
    float largest = -INFINITY, sum = 0.0f;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    for (uint32_t split = lane; split < keys.splits; split += 32) {
      const uint64_t row = static_cast<uint64_t>(head) * a.most_splits + split;
      const float4 share = await4(a.partial + (row * hd + dim) / 4, tag);
      const float share_max = await(a.stats + row * 2, tag), share_sum = await(a.stats + row * 2 + 1, tag);
      const float now = fmaxf(largest, share_max);
      const float keep = exp2_fast(largest - now), take = exp2_fast(share_max - now);
      sum = sum * keep + share_sum * take;
      total = make_float4(total.x * keep + share.x * take, total.y * keep + share.y * take,
                          total.z * keep + share.z * take, total.w * keep + share.w * take);
      largest = now;
    }
    float overall = largest;
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
      overall = fmaxf(overall, __shfl_xor_sync(0xffffffffu, overall, offset));
    const float factor = exp2_fast(largest - overall);  // 0 for lanes without a share
    sum = warp_sum(sum * factor);
    total = make_float4(warp_sum(total.x * factor), warp_sum(total.y * factor), warp_sum(total.z * factor),
                        warp_sum(total.w * factor));
    if (lane == 0) {
      const float scale = 1.0f / sum;
      publish4(a.out + q, make_float4(total.x * scale, total.y * scale, total.z * scale, total.w * scale),
               stage_tag(serial, number));
    }
  }
}

}  // namespace carat::cuda
