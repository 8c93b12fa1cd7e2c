#pragma once

// Device code: the activations of a product, made by every block for itself. The residual stream lies in the shared
// memory of each block; all of them update it alike, so it never travels.
//
// The time from a vector to its activations is time in which nothing is multiplied, and what counts is instructions:
// four warps share a scheduler.
#include "exec/cuda/kernels/megakernel/product.cuh"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {

// Four sums over the block: what every warp puts down is read after a barrier. `scratch`: 4 kMegakernelWarps floats
// that no sum before the next barrier uses.
struct BlockSums {
  uint32_t put_at, take_at;
  bool puts;
  __device__ explicit BlockSums(float* scratch) {
    const uint32_t lane = threadIdx.x % 32, at = shared_address(scratch);
    static_assert(kMegakernelWarps == 16);
    put_at = at + (lane / 8 * kMegakernelWarps + threadIdx.x / 32) * 4;
    take_at = at + lane * 8;
    puts = lane % 8 == 0;
    pin(put_at), pin(take_at);
  }
  __device__ void put(const float (&value)[4]) const {
    const float mine = reduce_rows<4>(value);
    if (puts) store_shared(put_at, mine);
  }
  __device__ float4 take() const {
    const float2 two = load_shared_2_floats(take_at);
    float total = two.x + two.y;
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
    return make_float4(__shfl_sync(0xffffffffu, total, 0), __shfl_sync(0xffffffffu, total, 8),
                       __shfl_sync(0xffffffffu, total, 16), __shfl_sync(0xffffffffu, total, 24));
  }
};

__device__ __forceinline__ float4 scaled(const float4& v, float factor, const float4& w) {
  return make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w);
}
__device__ __forceinline__ float4 sum_of(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Vectors are dealt out to the threads in pieces of eight columns. Piece q of a vector, piece q + kMegakernelThreads,
// ... belong to thread q.
static_assert(sizeof(Eight) == kMegakernelThreadColumns * sizeof(float));
__device__ __forceinline__ Eight read_eight(const float* from) {
  const auto* quads = reinterpret_cast<const float4*>(from);
  return {quads[0], quads[1]};
}
__device__ __forceinline__ void write_eight(float* to, const Eight& e) {
  auto* quads = reinterpret_cast<float4*>(to);
  quads[0] = e.low, quads[1] = e.high;
}
__device__ __forceinline__ Eight same_eight(float v) { return {make_float4(v, v, v, v), make_float4(v, v, v, v)}; }
__device__ __forceinline__ float dot_of(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ __forceinline__ float dot_of(const Eight& a, const Eight& b) {
  return dot_of(a.low, b.low) + dot_of(a.high, b.high);
}
__device__ __forceinline__ Eight scaled(const Eight& v, float factor, const Eight& w) {
  return {scaled(v.low, factor, w.low), scaled(v.high, factor, w.high)};
}
// (a + factor b) scale
__device__ __forceinline__ float4 joined(const float4& a, float factor, const float4& b, float scale) {
  return make_float4((a.x + factor * b.x) * scale, (a.y + factor * b.y) * scale, (a.z + factor * b.z) * scale,
                     (a.w + factor * b.w) * scale);
}
__device__ __forceinline__ Eight joined(const Eight& a, float factor, const Eight& b, float scale) {
  return {joined(a.low, factor, b.low, scale), joined(a.high, factor, b.high, scale)};
}

// Eight words that are being waited for.
struct EightWords {
  FourWords low{}, high{};
  __device__ void load(const TaggedWord* at) {
    low = load4_tagged(at);
    high = load4_tagged(at + 4);
  }
  __device__ bool have(uint32_t tag) const { return low.have(tag) && high.have(tag); }
  __device__ Eight values() const { return {low.values(), high.values()}; }
  __device__ Eight await(const TaggedWord* at, uint32_t tag) {
    while (!have(tag)) {
      pause_before_asking();
      load(at);
    }
    return values();
  }
};

// Eight values that travel together, likewise.
struct AwaitedEight {
  EightWord word{};
  __device__ void load(const TaggedEight* at) { word.load(at); }
  __device__ Eight await(const TaggedEight* at, uint32_t tag) {
    while (!word.has(tag)) {
      pause_before_asking();
      load(at);
    }
    float v[kMegakernelEight];
    word.values(v);
    return {make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7])};
  }
};

// Where a thread's eight columns of the activations lie, as addresses. Worked out before the input is there: after that
// every instruction counts.
struct ActivationPlace {
  uint32_t values, words, scales, sums;
  bool first;  // of the two that share a run
  __device__ ActivationPlace(uint32_t steps, uint32_t column) {
    const uint32_t region = shared_address(megakernel_region());
    const uint32_t run = column % 32 / 16 * 8 + column % kStep / 32, meta = column / kStep * kStepRuns + run;
    values = region + column * 4;
    words = region + (column / kStep * kStepQuads + run) * 16 + column % 16;
    scales = region + steps * (kStepWords * 4) + meta * 4;
    sums = scales + steps * (kStepRuns * 4);
    first = column % 16 == 0;
    pin(words), pin(scales);
  }
};

// Four rounded values, as rounded_bits leaves them: their upper eight bits and their lower seven, a byte each.
__device__ __forceinline__ void split_four(const uint4& r, uint32_t& upper, uint32_t& lower) {
  const uint32_t first = __byte_perm(r.x, r.y, 0x5410), last = __byte_perm(r.z, r.w, 0x5410);
  upper = __byte_perm(first << 1, last << 1, 0x7531);
  lower = __byte_perm(first, last, 0x6420) & 0x7f7f7f7fu;
}

// Rounds eight columns; two neighbouring lanes share a run of 16. By whole warps. What is stored is read after the next
// barrier. `times`: of all activations; it only scales the runs.
__device__ __forceinline__ void store_activations(const Eight& e, float times, bool floats, bool with_sums,
                                                  const ActivationPlace& to) {
  if (floats) {
    const Eight v = scaled(e, times, same_eight(1.0f));
    store_shared(to.values, v.low);
    store_shared(to.values + 16, v.high);
    return;
  }
  const auto largest_of = [](const float4& v) {
    return max_or_nan(max_or_nan(fabsf(v.x), fabsf(v.y)), max_or_nan(fabsf(v.z), fabsf(v.w)));
  };
  float largest = max_or_nan(largest_of(e.low), largest_of(e.high));
  largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  const float levels = levels_of(largest), scale = largest * (1.0f / kLevels) * times;
  const auto round = [&](const float4& v) {
    return make_uint4(rounded_bits(v.x, levels), rounded_bits(v.y, levels), rounded_bits(v.z, levels),
                      rounded_bits(v.w, levels));
  };
  const uint4 a = round(e.low), b = round(e.high);
  uint2 upper, lower;
  split_four(a, upper.x, lower.x);
  split_four(b, upper.y, lower.y);
  store_shared(to.words, upper);
  store_shared(to.words + 16 * kStepRuns, lower);
  if (to.first) store_shared(to.scales, scale);
  if (!with_sums) return;
  int sum = static_cast<int>(a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w - 8 * 0x4b400000u);
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (to.first) store_shared(to.sums, scale * static_cast<float>(sum));
}

// What a product wants of its activations. Known when compiled where all packings of the set want the same; sums that
// nobody wants do no harm.
template <PackingSet kPackings>
struct ActivationKind {
  static constexpr PackingSet kFloats = packing_set({Packing::kF16, Packing::kBF16, Packing::kF32});
  static constexpr PackingSet kWithSums = packing_set({Packing::kQ4, Packing::kQ4K, Packing::kQ5K});
  static constexpr bool with_sums = (kPackings & kWithSums) != 0;
  bool floats;
  __device__ explicit ActivationKind(Packing packing)
      : floats((kPackings & kFloats) != 0 && is_float_packing(packing)) {}
};

// The first column of this thread's piece `piece`.
__device__ __forceinline__ uint32_t column_of(uint32_t piece) {
  return kMegakernelThreadColumns * (threadIdx.x + piece * kMegakernelThreads);
}
// True where this thread's warp has a part of piece `piece` of a vector of `width` columns, which are whole steps.
__device__ __forceinline__ bool warp_has(uint32_t piece, uint32_t width) {
  return kMegakernelThreadColumns * ((threadIdx.x & ~31u) + piece * kMegakernelThreads) < width;
}

// A block's rows of the router of a mixture of experts, in registers.
template <bool kRouting>
struct RouterRows {
  __device__ RouterRows(const MegakernelProduct&, uint32_t) {}
};
template <>
struct RouterRows<true> {
  BlockSums sums;
  Eight row[kMegakernelRouterRows] = {};
  float part[4] = {};  // of each row: times the stream, times the delta
  static_assert(2 * kMegakernelRouterRows <= 4);

  __device__ RouterRows(const MegakernelProduct& p, uint32_t d)
      : sums(megakernel_shared().sums + 4 * kMegakernelWarps) {
    const uint32_t column = column_of(0);
    if (column >= d) return;
    const Eight scale = read_eight(p.router_scale + column);
#pragma unroll
    for (uint32_t r = 0; r < kMegakernelRouterRows; ++r) {
      const uint32_t expert = blockIdx.x + r * gridDim.x;
      if (expert < p.experts_total) row[r] = scaled(read_eight(p.router_weights + expert * d + column), 1.0f, scale);
    }
  }
  __device__ void add_old(const Eight& stream) {
#pragma unroll
    for (uint32_t r = 0; r < kMegakernelRouterRows; ++r) part[2 * r] = dot_of(row[r], stream);
  }
  __device__ void add_delta(const Eight& e) {
#pragma unroll
    for (uint32_t r = 0; r < kMegakernelRouterRows; ++r) part[2 * r + 1] = dot_of(row[r], e);
  }
  __device__ void put() const { sums.put(part); }
  // After the barrier, by all warps. A rounded logit could choose another expert: they travel exact.
  __device__ void publish_logits(const MegakernelProduct& p, uint32_t serial, float f, float times) const {
    if (threadIdx.x >= 32) return;
    const float4 total = sums.take();
    const uint32_t lane = threadIdx.x, expert = blockIdx.x + lane * gridDim.x;
    if (lane >= kMegakernelRouterRows || expert >= p.experts_total) return;
    const float logit = (lane == 0 ? total.x + f * total.y : total.z + f * total.w) * times;
    publish(p.router + expert, logit, version_tag(serial, p.router_version));
  }
};

// What a stage that changes the stream knows of it before what it absorbs is there. Piece 0 of a thread.
struct StreamPlace {
  uint32_t x;  // its address
  float eps, inverse_d, scale;
  bool normalises;
  __device__ StreamPlace(const MegakernelShared& shared, const MegakernelProduct& p, bool absorbs)
      : x(shared_address(megakernel_stream() + column_of(0))),
        eps(shared.eps),
        inverse_d(shared.inverse_d),
        scale(absorbs ? p.scale : 1.0f),
        normalises(p.next_norm != nullptr) {
    pin(x);
  }
  static constexpr uint32_t kNextPiece = kMegakernelThreads * kMegakernelThreadColumns * 4;  // bytes
  __device__ Eight read(uint32_t piece) const {
    return {load_shared_4_floats(x + piece * kNextPiece), load_shared_4_floats(x + piece * kNextPiece + 16)};
  }
  __device__ void write(uint32_t piece, const Eight& v) const {
    const Eight kept = scaled(v, scale, same_eight(1.0f));
    store_shared(x + piece * kNextPiece, kept.low);
    store_shared(x + piece * kNextPiece + 16, kept.high);
  }
  __device__ float norm_of(float squares) const { return rsqrt_fast(squares * inverse_d + eps); }
  // What the new stream, still without its scale, is multiplied with as activations. squares: of that.
  __device__ float leave_factor(MegakernelShared& shared, float squares) const {
    const float factor = norm_of(scale * scale * squares);
    if (threadIdx.x == 0) shared.stream_factor = factor;
    return normalises ? scale * factor : scale;
  }
};

// Absorbs what the stream still has to absorb, and leaves its norm as activations.
//
// The stream's new norm follows from sums over the old stream and the delta, so that one reduction does for both:
// |x + f e|^2 = |x|^2 + 2 f x.e + f^2 |e|^2 with e = delta * weight and f the factor of the delta's norm.
//
// What is rounded is (x + f e) * norm: the stream's own factor and scale only scale the runs.
//
// kRouting: logits of the experts are made besides. They are rows of weights times (x + f e), so what they need are two
// more sums a row, and the rows are in registers before e is there.
template <MegakernelBuild kBuild, uint32_t kPieces, bool kRouting>
__device__ __noinline__ void residual_activations(uint32_t stage) {
  MegakernelShared& shared = megakernel_shared();
  const MegakernelProduct& p = shared.window[stage].stage.product;
  const uint32_t d = shared.d;
  const bool absorbs = p.in != nullptr;
  const ActivationKind<kBuild.packings> kind(p.packing);
  const BlockSums sums(shared.sums);
  const StreamPlace x(shared, p, absorbs);
  RouterRows<kRouting> router(p, d);
  const bool has_first = warp_has(0, p.steps * kStep);
  const ActivationPlace place(p.steps, column_of(0));
  // Without initial values, the compiler would keep them in local memory between calls.
  Eight weight[kPieces] = {}, norm[kPieces] = {}, e[kPieces] = {}, old = {};
  float part[4] = {};  // |x|^2, |delta|^2, x.e, |e|^2
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (column_of(i) >= d) continue;
    norm[i] = x.normalises ? read_eight(p.next_norm + column_of(i)) : same_eight(1.0f);
    if (absorbs) weight[i] = read_eight(p.delta_norm + column_of(i));
    const Eight stream = x.read(i);
    part[0] += dot_of(stream, stream);
    if constexpr (kPieces == 1) old = stream;  // two would take too many registers
    if constexpr (kRouting) router.add_old(stream);
  }
  if (absorbs) {
    const auto* in = static_cast<const TaggedWord*>(p.in);
    const uint32_t tag = version_tag(shared.serial, p.in_version);
    EightWords words[kPieces];
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      if (column_of(i) < d) words[i].load(in + column_of(i));
    }
    bool there;
    do {
      there = true;
#pragma unroll
      for (uint32_t i = 0; i < kPieces; ++i) there = there && (column_of(i) >= d || words[i].have(tag));
      if (there) break;
      pause_before_asking();
#pragma unroll
      for (uint32_t i = 0; i < kPieces; ++i) {
        if (column_of(i) < d) words[i].load(in + column_of(i));
      }
    } while (true);
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      if (column_of(i) < d) e[i] = words[i].values();
    }
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      if (column_of(i) >= d) continue;
      const Eight stream = kPieces == 1 ? old : x.read(i);
      part[1] += dot_of(e[i], e[i]);
      e[i] = scaled(e[i], 1.0f, weight[i]);
      part[2] += dot_of(stream, e[i]);
      part[3] += dot_of(e[i], e[i]);
      if constexpr (kRouting) router.add_delta(e[i]);
    }
  }
  __syncwarp();
  sums.put(part);
  if constexpr (kRouting) router.put();
  compute_barrier();
  const float4 total = sums.take();
  const float f = absorbs ? x.norm_of(total.y) : 0.0f;
  const float times = x.leave_factor(shared, total.x + f * (2.0f * total.z + f * total.w));
  if constexpr (kRouting) router.publish_logits(p, shared.serial, f, times);
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (i == 0 ? !has_first : !warp_has(i, p.steps * kStep)) break;
    const uint32_t column = column_of(i);
    Eight v = same_eight(0.0f);
    if (column < d) v = joined(kPieces == 1 ? old : x.read(i), f, e[i], 1.0f);
    const Eight normed = scaled(v, 1.0f, norm[i]);
    if (i == 0) {
      store_activations(normed, times, kind.floats, kind.with_sums, place);
    } else {
      store_activations(normed, times, kind.floats, kind.with_sums, ActivationPlace(p.steps, column));
    }
    if (absorbs && column < d) x.write(i, v);
  }
}

// One branch of a mixture of experts on its way to the stream x: after its own norm's weights, and after those of the
// sum's norm too. sums: |branch|^2, |normed|^2, x.weighted, |weighted|^2.
__device__ __forceinline__ Eight normed_branch(const Eight& branch, const Eight& norm, float (&sums)[4]) {
  sums[0] = dot_of(branch, branch);
  const Eight normed = scaled(branch, 1.0f, norm);
  sums[1] = dot_of(normed, normed);
  return normed;
}
__device__ __forceinline__ Eight weighted_branch(const Eight& normed, const Eight& weight, const Eight& x,
                                                 float (&sums)[4]) {
  const Eight weighted = scaled(normed, 1.0f, weight);
  sums[2] = dot_of(x, weighted);
  sums[3] = dot_of(weighted, weighted);
  return weighted;
}

// The same where both branches of a mixture of experts are absorbed, each normalised before their sum is. `dense` and
// `experts` are what they are after their own norms' weights, a and b after the sum's too. With f, g the factors of
// their norms |f dense + g experts|^2 = f^2 |dense|^2 + 2 f g dense.experts + g^2 |experts|^2, and so on: one reduction
// does again. Experts come last.
template <MegakernelBuild kBuild>
__device__ __noinline__ void mixture_activations(uint32_t stage) {
  MegakernelShared& shared = megakernel_shared();
  const MegakernelProduct& p = shared.window[stage].stage.product;
  const uint32_t column = column_of(0);
  const bool mine = column < shared.d, has_first = warp_has(0, p.steps * kStep);
  const ActivationKind<kBuild.packings> kind(p.packing);
  const BlockSums sums(shared.sums), sums_of_dense(shared.sums + 4 * kMegakernelWarps),
      sums_of_both(shared.sums + 8 * kMegakernelWarps);
  const StreamPlace x(shared, p, true);
  const ActivationPlace place(p.steps, column);
  Eight old = {}, norm = {}, weight = {}, experts_norm = {}, a = {}, b = {}, dense = {};
  float of_dense[4] = {}, of_experts[4] = {}, of_both[4] = {};
  if (mine) {
    norm = x.normalises ? read_eight(p.next_norm + column) : same_eight(1.0f);
    weight = read_eight(p.delta_norm + column);
    experts_norm = read_eight(p.experts_norm + column);
    const Eight dense_norm = read_eight(p.dense_norm + column);
    old = x.read(0);
    EightWords words;
    const auto* in = static_cast<const TaggedWord*>(p.in);
    words.load(in + column);
    a = words.await(in + column, version_tag(shared.serial, p.in_version));
    dense = normed_branch(a, dense_norm, of_dense);
    a = weighted_branch(dense, weight, old, of_dense);
    of_both[3] = dot_of(old, old);
  }
  __syncwarp();
  sums_of_dense.put(of_dense);
  if (mine) {
    EightWords words;
    words.load(p.experts + column);
    b = words.await(p.experts + column, version_tag(shared.serial, p.experts_version));
    const Eight experts = normed_branch(b, experts_norm, of_experts);
    of_both[0] = dot_of(dense, experts);
    b = weighted_branch(experts, weight, old, of_experts);
    of_both[1] = dot_of(a, b);
  }
  __syncwarp();
  sums.put(of_experts);
  sums_of_both.put(of_both);
  compute_barrier();
  const float4 u = sums_of_dense.take(), v = sums.take(), both = sums_of_both.take();
  const float f = x.norm_of(u.x), g = x.norm_of(v.x);
  const float sum_factor = x.norm_of(f * f * u.y + 2.0f * f * g * both.x + g * g * v.y);
  const float a_factor = f * sum_factor, b_factor = g * sum_factor;
  const float squares = both.w + 2.0f * (a_factor * u.z + b_factor * v.z) + a_factor * a_factor * u.w +
                        2.0f * a_factor * b_factor * both.y + b_factor * b_factor * v.w;
  const float times = x.leave_factor(shared, squares);
  if (!has_first) return;
  const Eight stream = joined(joined(old, a_factor, a, 1.0f), b_factor, b, 1.0f);
  store_activations(scaled(stream, 1.0f, norm), times, kind.floats, kind.with_sums, place);
  if (mine) x.write(0, stream);
}

// Another norm of the stream as it was left by the last stage that read it.
template <MegakernelBuild kBuild>
__device__ __noinline__ void stream_activations(uint32_t stage) {
  const MegakernelShared& shared = megakernel_shared();
  const MegakernelProduct& p = shared.window[stage].stage.product;
  const uint32_t d = shared.d, width = p.steps * kStep;
  const ActivationKind<kBuild.packings> kind(p.packing);
  const float factor = p.next_norm != nullptr ? shared.stream_factor : 1.0f;
#pragma unroll 1
  for (uint32_t piece = 0; warp_has(piece, width); ++piece) {
    const uint32_t column = column_of(piece);
    const ActivationPlace place(p.steps, column);
    Eight v = same_eight(0.0f);
    if (column < d) v = read_eight(megakernel_stream() + column);
    if (column < d && p.next_norm != nullptr) v = scaled(v, 1.0f, read_eight(p.next_norm + column));
    store_activations(v, factor, kind.floats, kind.with_sums, place);
  }
}

// Vectors that are rounded as they come, piece after piece. Pieces are made at about the same time: once one is there,
// the next is asked for.
// find(column): where a thread's piece comes from; kNowhere: it is zero.
inline constexpr uint32_t kNowhere = 0xffffffffu;
template <MegakernelBuild kBuild, typename Words, typename Word, typename Find>
__device__ __forceinline__ void piece_activations(const MegakernelProduct& p, const Word* in, uint32_t serial,
                                                  const Find& find) {
  const uint32_t tag = version_tag(serial, p.in_version), width = p.steps * kStep;
  const ActivationKind<kBuild.packings> kind(p.packing);
  Words words;
  uint32_t from = find(column_of(0));
  if (from != kNowhere) words.load(in + from);
#pragma unroll 1
  for (uint32_t piece = 0; warp_has(piece, width); ++piece) {
    const ActivationPlace place(p.steps, column_of(piece));
    const uint32_t following = find(column_of(piece + 1));
    const Eight v = from != kNowhere ? words.await(in + from, tag) : same_eight(0.0f);
    Words next;
    if (following != kNowhere) next.load(in + following);
    __syncwarp();
    store_activations(v, 1.0f, kind.floats, kind.with_sums, place);
    words = next, from = following;
  }
}

template <MegakernelBuild kBuild>
__device__ __noinline__ void vector_activations(uint32_t stage) {
  const MegakernelShared& shared = megakernel_shared();
  const MegakernelProduct& p = shared.window[stage].stage.product;
  const auto* in = static_cast<const TaggedWord*>(p.in);
  const uint32_t columns = p.columns;
  piece_activations<kBuild, EightWords>(p, in, shared.serial,
                                        [&](uint32_t column) { return column < columns ? column : kNowhere; });
}

// The results of GEGLU. In the experts' down product the experts in use stand one after the other, each padded to whole
// steps, so that one product adds them up.
template <MegakernelBuild kBuild>
__device__ __noinline__ void eight_activations(uint32_t stage) {
  const MegakernelShared& shared = megakernel_shared();
  const MegakernelProduct& p = shared.window[stage].stage.product;
  const auto* in = static_cast<const TaggedEight*>(p.in);
  const uint32_t columns = p.columns, inverse = p.expert_inverse, padded = p.expert_steps * kStep;
  const uint32_t width = p.steps * kStep;
  piece_activations<kBuild, AwaitedEight>(p, in, shared.serial, [&](uint32_t column) {
    const uint32_t expert = !kBuild.experts || padded == 0 ? 0 : __umulhi(column, inverse);
    const uint32_t within = column - expert * padded;
    return column < width && within < columns ? (expert * columns + within) / kMegakernelEight : kNowhere;
  });
}

}  // namespace carat::cuda
