#pragma once

// Device code: attention of one token. The visible keys are cut into tiles of 64 positions; every KV head's tiles are
// dealt out to as many blocks as there are (or as the chip has for a head). A block takes the query heads of its KV
// head (at most 16) as the rows of tensor-core tiles. Where a block has few tiles, it loads them itself, straight to
// the fragments:
//   scores   warp w: keys 8 (w / 2) ..., half w % 2 of the head's dimensions; K goes from memory to B fragments as it
//            lies, because the order of the dimensions does not matter as long as Q's is the same
//   softmax  warp h: head h, without the sum
//   output   warp w: a sixteenth of the dimensions, all 64 keys, and the sum of the chances; V's fragments are pairs
//            of keys, put together from two loads
// and where it has many, they come through the ring (megakernel_attention_deep.cuh). Where several blocks share a KV
// head, a second stage puts their results together.
#include "exec/cuda/kernels/megakernel/attention_deep.cuh"
#include "exec/cuda/kernels/select/ordered.cuh"

namespace carat::cuda {

inline constexpr uint32_t kScoreStride = kTileKeys + 4;  // floats
inline constexpr uint32_t kQueryPad = 64;                // bytes: neighbouring heads lie that much of the banks apart

struct MegakernelAttentionShared {
  alignas(16) unsigned char q[kMegakernelMaxHeads * (512 * 2 + kQueryPad)];  // [16] rows of hd halves
  alignas(16) float scores[2 * kMegakernelMaxHeads * kScoreStride];          // of either half of the dimensions
  alignas(16) __half chance[kMegakernelMaxHeads * kChanceStride];
  float largest[kMegakernelMaxHeads], keep[kMegakernelMaxHeads];
  alignas(16) __half newest_key[512];  // the token's own
  alignas(16) __half newest_value[512];
};
static_assert(sizeof(MegakernelAttentionShared) <= megakernel_attention_bytes());

template <int kHd>
struct MegakernelAttentionBlock {
  static constexpr uint32_t kQueryRow = kHd * 2 + kQueryPad;  // bytes
  static constexpr int kScoreChunks = kHd / 64;               // of 32 dimensions, of this warp's half
  static constexpr int kLaneDims = kHd / 128;                 // consecutive dimensions of V a lane loads: 2 or 4

  const MegakernelAttention& a;
  MegakernelAttentionShared& s;
  const AttentionShare& share;
  KvRows<__half> cache;
  uint32_t warp, lane;

  // Before the first tile. What belongs to heads that the group does not have is left as it lies: heads do not mix, and
  // nobody looks at theirs.
  __device__ void begin() const {
    if (threadIdx.x < kMegakernelMaxHeads) s.largest[threadIdx.x] = -INFINITY;
  }

  using Keys = uint4[kScoreChunks];
  using Values = uint32_t[kKeySteps][4][kLaneDims / 2];  // keys 2t, 2t + 1, 2t + 8, 2t + 9 of each step

  // What nobody sees is not loaded: every byte takes its time, with all weights on their way besides.
  __device__ void load_keys(uint32_t tile, Keys& k) const {
    const uint32_t row = warp / 2 * 8 + lane / 4;
    const __half* key = cache.row(false, share.visible, tile * kTileKeys + row) + warp % 2 * (kHd / 2) + 8 * (lane % 4);
#pragma unroll
    for (int j = 0; j < kScoreChunks; ++j) k[j] = make_uint4(0, 0, 0, 0);
    if (row > last_row(share, tile)) return;
#pragma unroll
    for (int j = 0; j < kScoreChunks; ++j) k[j] = load_cache_16(key + 32 * j);
  }
  // The token's own key, which was not in the cache yet when the others were loaded.
  __device__ void take_newest(Keys& k) const {
    if (warp / 2 * 8 + lane / 4 != share.newest % kTileKeys) return;
#pragma unroll
    for (int j = 0; j < kScoreChunks; ++j) {
      k[j] = *reinterpret_cast<const uint4*>(s.newest_key + warp % 2 * (kHd / 2) + 8 * (lane % 4) + 32 * j);
    }
  }

  // A lane's first value is that of row 2 (lane % 4); the distances to the others are known to the compiler, unless the
  // tile lies in two pieces.
  __device__ void load_values(uint32_t tile, Values& v) const {
    const KvPieces<__half> pieces = cache.pieces(true, share.visible, tile * kTileKeys);
    const uint32_t last = last_row(share, tile), row = 2 * (lane % 4);
    const uint32_t offset = row * kHd + warp * (kHd / 16) + lane / 4 * kLaneDims;
    const __half* value = pieces.first + offset;
    if (pieces.split >= kTileKeys) return load_values(v, last, [&](int distance) { return value + distance * kHd; });
    const __half* after_split = pieces.second + offset;
    load_values(v, last,
                [&](int distance) { return (row + distance < pieces.split ? value : after_split) + distance * kHd; });
  }
  template <typename At>
  __device__ __forceinline__ void load_values(Values& v, uint32_t last, const At& at) const {
    const int visible = static_cast<int>(last) - static_cast<int>(2 * (lane % 4));
#pragma unroll
    for (int step = 0; step < static_cast<int>(kKeySteps); ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int distance = 16 * step + (i & 1) + 8 * (i / 2);
        const __half* from = at(distance);
        uint2 both = make_uint2(0, 0);
        if (distance <= visible) {
          if constexpr (kLaneDims == 2) {
            both.x = load_cache_4(from);
          } else {
            both = load_cache_8(from);
          }
        }
        v[step][i][0] = both.x;
        if constexpr (kLaneDims == 4) v[step][i][1] = both.y;
      }
    }
  }

  // The token's own value, likewise.
  __device__ void take_newest(Values& v) const {
    static_assert(kLaneDims == 2 || kLaneDims == 4);
    const __half* own = s.newest_value + warp * (kHd / 16) + lane / 4 * kLaneDims;
    const int at = static_cast<int>(share.newest % kTileKeys) - static_cast<int>(2 * (lane % 4));
    uint2 both = make_uint2(*reinterpret_cast<const uint32_t*>(own), 0);
    if constexpr (kLaneDims == 4) both.y = *reinterpret_cast<const uint32_t*>(own + 2);
#pragma unroll
    for (int step = 0; step < static_cast<int>(kKeySteps); ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (at != 16 * step + (i & 1) + 8 * (i / 2)) continue;
        v[step][i][0] = both.x;
        if constexpr (kLaneDims == 4) v[step][i][1] = both.y;
      }
    }
  }

  __device__ void score(const Keys& k) const {
    const uint32_t g = lane / 4, t = lane % 4, first_dim = warp % 2 * (kHd / 2) + 8 * t;
    float c[4] = {}, d[4] = {};  // two chains of products instead of a long one
#pragma unroll
    for (int j = 0; j < kScoreChunks; ++j) {
      const uint4 q = *reinterpret_cast<const uint4*>(s.q + g * kQueryRow + 2 * (first_dim + 32 * j));
      uint4 q8 = make_uint4(0, 0, 0, 0);
      if (share.group > 8) q8 = *reinterpret_cast<const uint4*>(s.q + (g + 8) * kQueryRow + 2 * (first_dim + 32 * j));
      const uint32_t first[4] = {q.x, q8.x, q.y, q8.y}, second[4] = {q.z, q8.z, q.w, q8.w};
      multiply_add(c, first, k[j].x, k[j].y);
      multiply_add(d, second, k[j].z, k[j].w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] += d[i];
    float* to = s.scores + (warp % 2 * kMegakernelMaxHeads + g) * kScoreStride + warp / 2 * 8 + 2 * t;
    *reinterpret_cast<float2*>(to) = make_float2(c[0], c[1]);
    *reinterpret_cast<float2*>(to + 8 * kScoreStride) = make_float2(c[2], c[3]);
  }

  __device__ void soften(uint32_t tile) const {
    if (warp >= share.group) return;
    float v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t key = lane + 32 * i;
      const float score =
          s.scores[warp * kScoreStride + key] + s.scores[(kMegakernelMaxHeads + warp) * kScoreStride + key];
      v[i] = tile * kTileKeys + key <= share.newest ? score * kLog2E : -INFINITY;
    }
    const float before = s.largest[warp];
    const float now = fmaxf(before, key_value(__reduce_max_sync(0xffffffffu, ordered_key(fmaxf(v[0], v[1])))));
    s.chance[warp * kChanceStride + lane] = __float2half_rn(exp2_fast(v[0] - now));
    s.chance[warp * kChanceStride + lane + 32] = __float2half_rn(exp2_fast(v[1] - now));
    __syncwarp();
    if (lane == 0) {
      s.keep[warp] = exp2_fast(before - now);
      s.largest[warp] = now;
    }
  }

  using Fragment = float[kLaneDims][4];
  using Sums = float[4];  // of the chances, by a product with ones: 0 of head g, 2 of head g + 8

  __device__ void add_values(const Values& v, Fragment& out, Sums& sums) const {
    const uint32_t g = lane / 4, t = lane % 4;
    const float keep[2] = {s.keep[g], share.group > 8 ? s.keep[g + 8] : 1.0f};
#pragma unroll
    for (int j = 0; j < kLaneDims; ++j) {
      out[j][0] *= keep[0], out[j][1] *= keep[0];
      out[j][2] *= keep[1], out[j][3] *= keep[1];
    }
    sums[0] *= keep[0], sums[2] *= keep[1];
#pragma unroll
    for (int step = 0; step < static_cast<int>(kKeySteps); ++step) {
      const __half* p = s.chance + g * kChanceStride + 16 * step + 2 * t;
      const auto pair = [](const __half* at) { return *reinterpret_cast<const uint32_t*>(at); };
      uint32_t chance[4] = {pair(p), 0, pair(p + 8), 0};
      if (share.group > 8) chance[1] = pair(p + 8 * kChanceStride), chance[3] = pair(p + 8 * kChanceStride + 8);
#pragma unroll
      for (int j = 0; j < kLaneDims; ++j) {
        const uint32_t half = j % 2 == 0 ? 0x5410u : 0x7632u;
        multiply_add(out[j], chance, __byte_perm(v[step][0][j / 2], v[step][1][j / 2], half),
                     __byte_perm(v[step][2][j / 2], v[step][3][j / 2], half));
      }
      constexpr uint32_t kOnes = 0x3c003c00u;
      multiply_add(sums, chance, kOnes, kOnes);
    }
  }

  // Column n of out[j] is dimension n * kLaneDims + j of the warp's, and a lane holds columns 2 t and 2 t + 1.
  __device__ void hand_out(const Fragment& out, const Sums& sums, const AttentionResults& results) const {
    const uint32_t g = lane / 4, dim = warp * (kHd / 16) + lane % 4 * 2 * kLaneDims;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint32_t head = g + 8 * row;
      if (head >= share.group) continue;
      const float factor = results.whole ? reciprocal_fast(sums[2 * row]) : 1.0f;
      const auto value = [&](int i) { return out[i % kLaneDims][2 * row + i / kLaneDims] * factor; };
#pragma unroll
      for (int q = 0; q < kLaneDims / 2; ++q) {
        results.publish_quad((head * kHd + dim) / 4 + q,
                             make_float4(value(4 * q), value(4 * q + 1), value(4 * q + 2), value(4 * q + 3)));
      }
      if (results.whole || warp != 0 || lane % 4 != 0) continue;
      publish_stats(a, share.kv_head * share.group + head, share.split, s.largest[head], sums[2 * row], results.tag);
    }
  }
};

// This block's share of an attention stage, where it is short. A call of its own, as everything that happens once a
// stage.
template <int kHd>
__device__ __noinline__ void attend_short(uint32_t stage) {
  const MegakernelShared& shared = megakernel_shared();
  const WindowStage& now = shared.window[stage];
  using Block = MegakernelAttentionBlock<kHd>;
  const MegakernelAttention& a = now.stage.attention;
  const AttentionShare& share = now.share;
  auto& s = *reinterpret_cast<MegakernelAttentionShared*>(megakernel_region());
  const KvHead cached(a.shape, shared.sequence, share.kv_head);
  const Block block{a, s, share, kv_halves(a.kv, cached, kHd), threadIdx.x / 32, threadIdx.x % 32};
  const uint32_t first = share.first, end = share.end;
  const bool newest = a.owns && share.split + 1 == share.splits;
  // The first tile's keys and values are on their way while the queries are waited for; the token's own follow. The
  // queries are asked for before the values, which are many.
  constexpr bool kEarly = kHd == 256;  // larger heads' would not fit the registers
  typename Block::Keys k;
  typename Block::Values v;
  if constexpr (kEarly) block.load_keys(first, k);
  __half* value = s.newest_value;
  const MegakernelHeads<kHd, Block::kQueryRow> heads{a,     share,  shared,     s.q,       s.newest_key,
                                                     value, newest, block.warp, block.lane};
  heads.prepare([&] {
    if constexpr (kEarly) block.load_values(first, v);
  });
  // Layers that share this cache read it from other SMs.
  if (a.lends && (heads.makes_key() || heads.makes_value())) __threadfence();
  block.begin();
  typename Block::Fragment out{};
  typename Block::Sums sums{};
  compute_barrier();
#pragma unroll 1
  for (uint32_t tile = first; tile < end; ++tile) {
    if (!kEarly || tile > first) block.load_keys(tile, k);
    if (kEarly && tile > first) block.load_values(tile, v);
    const bool own = kEarly && newest && tile + 1 == end;
    if (own) block.take_newest(k);
    block.score(k);
    if constexpr (!kEarly) block.load_values(tile, v);
    compute_barrier();
    block.soften(tile);
    if (own) block.take_newest(v);  // most warps have nothing else to do
    compute_barrier();
    block.add_values(v, out, sums);
    // The next tile's scores are not read, nor its chances written, before the barrier between them.
  }
  block.hand_out(out, sums, AttentionResults(a, share, shared.serial));
}

// How a block takes its share of an attention stage, and the code for it.
__device__ __forceinline__ StageStart attention_start(const MegakernelAttention& a, const AttentionShare& share) {
  if (share.split >= share.splits) return StageStart::kNothing;
  if (through_ring(a, share)) return share.group <= 8 ? StageStart::kDeepAttention : StageStart::kDeepAttentionOf16;
  return a.shape.hd == 256 ? StageStart::kAttention256 : StageStart::kAttention512;
}
__device__ __forceinline__ void attend(StageStart start, uint32_t stage) {
  if (start == StageStart::kAttention256) return attend_short<256>(stage);
  if (start == StageStart::kAttention512) return attend_short<512>(stage);
  if (start == StageStart::kDeepAttention) return attend_deep<1>(stage);
  if (start == StageStart::kDeepAttentionOf16) attend_deep<2>(stage);
}

}  // namespace carat::cuda
