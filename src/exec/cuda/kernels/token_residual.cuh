#pragma once

// Device code: the activations of a product, made by every block for itself. The residual stream lies in the shared
// memory of each block; all of them update it alike, so it never travels.
//
// The time from a vector to its activations is time in which nothing is multiplied, and what counts is instructions:
// four warps share a scheduler.
#include "exec/cuda/kernels/token_product.cuh"

namespace carat::cuda {

// Four sums over the block: what every warp puts down is read after a barrier. `scratch`: 4 kTokenWarps floats that no
// sum before the next barrier uses.
struct BlockSums {
  uint32_t put_at, take_at;
  bool puts;
  __device__ explicit BlockSums(float* scratch) {
    const uint32_t lane = threadIdx.x % 32, at = shared_address(scratch);
    static_assert(kTokenWarps == 16);
    put_at = at + (lane / 8 * kTokenWarps + threadIdx.x / 32) * 4;
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

// Of numbers that are not tiny: the sum with an epsilon.
__device__ __forceinline__ float rsqrt_fast(float v) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
  return root;
}

__device__ __forceinline__ float4 scaled(const float4& v, float factor, const float4& w) {
  return make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w);
}
__device__ __forceinline__ float4 sum_of(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Eight neighbouring columns: vectors are dealt out to the threads in such pieces. Piece q of a vector, piece
// q + kTokenThreads, ... belong to thread q.
struct Eight {
  float4 low, high;
};
static_assert(sizeof(Eight) == kTokenThreadColumns * sizeof(float));
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
  __device__ Eight await(const TaggedWord* at, uint32_t tag) {
    while (!low.have(tag) || !high.have(tag)) {
      pause_before_asking();
      load(at);
    }
    return {low.values(), high.values()};
  }
};

// Where a thread's eight columns of the activations lie, as addresses. Worked out before the input is there: after that
// every instruction counts.
struct ActivationPlace {
  uint32_t values, words, scales, sums;
  bool first;  // of the two that share a run
  __device__ ActivationPlace(uint32_t steps, uint32_t column) {
    const uint32_t region = shared_address(token_region());
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

// What a product wants of its activations.
struct ActivationKind {
  bool floats, with_sums;
  __device__ explicit ActivationKind(Packing packing)
      : floats(is_float_packing(packing)),
        with_sums(packing == Packing::kQ4 || packing == Packing::kQ4K || packing == Packing::kQ5K) {}
};

// The first column of this thread's piece `piece`.
__device__ __forceinline__ uint32_t column_of(uint32_t piece) {
  return kTokenThreadColumns * (threadIdx.x + piece * kTokenThreads);
}
// True where this thread's warp has a part of piece `piece` of a vector of `width` columns, which are whole steps.
__device__ __forceinline__ bool warp_has(uint32_t piece, uint32_t width) {
  return kTokenThreadColumns * ((threadIdx.x & ~31u) + piece * kTokenThreads) < width;
}

// What the stream absorbs: one vector, or both branches of a mixture of experts, each normalised.
template <uint32_t kPieces, bool kMixture>
__device__ __forceinline__ void await_delta(const TokenProduct& p, uint32_t d, float eps, uint32_t serial,
                                            const BlockSums& sums, Eight (&delta)[kPieces]) {
  const auto* in = static_cast<const TaggedWord*>(p.in);
  const uint32_t tag = version_tag(serial, p.in_version);
  EightWords words[kPieces];
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (column_of(i) < d) words[i].load(in + column_of(i));
  }
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (column_of(i) < d) delta[i] = words[i].await(in + column_of(i), tag);
  }
  if constexpr (!kMixture) return;
  Eight other[kPieces] = {};
  float squares[4] = {};
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (column_of(i) >= d) continue;
    words[i].load(p.experts + column_of(i));
    other[i] = words[i].await(p.experts + column_of(i), version_tag(serial, p.experts_version));
    squares[0] += dot_of(delta[i], delta[i]);
    squares[1] += dot_of(other[i], other[i]);
  }
  sums.put(squares);
  token_barrier();
  const float4 total = sums.take();
  const float inverse_d = token_shared().inverse_d;
  const float dense_factor = rsqrt_fast(total.x * inverse_d + eps),
              expert_factor = rsqrt_fast(total.y * inverse_d + eps);
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (column_of(i) >= d) continue;
    const Eight dense = scaled(delta[i], dense_factor, read_eight(p.dense_norm + column_of(i)));
    const Eight experts = scaled(other[i], expert_factor, read_eight(p.experts_norm + column_of(i)));
    delta[i] = {sum_of(dense.low, experts.low), sum_of(dense.high, experts.high)};
  }
}

// Absorbs what the stream still has to absorb, and leaves its norm as activations.
//
// The stream's new norm follows from sums over the old stream and the delta, so that one reduction does for both:
// |x + f e|^2 = |x|^2 + 2 f x.e + f^2 |e|^2 with e = delta * weight and f the factor of the delta's norm.
//
// What is rounded is (x + f e) * norm: the stream's own factor and scale only scale the runs.
template <uint32_t kPieces, bool kMixture>
__device__ __noinline__ void residual_activations(uint32_t stage) {
  TokenShared& shared = token_shared();
  const TokenProduct& p = shared.window[stage].stage.product;
  const uint32_t d = shared.d;
  const float eps = shared.eps, inverse_d = shared.inverse_d;
  const bool absorbs = p.in != nullptr, normalises = p.next_norm != nullptr;
  const float scale = absorbs ? p.scale : 1.0f;
  const ActivationKind kind(p.packing);
  const BlockSums sums(shared.sums);
  uint32_t x_at = shared_address(token_stream() + column_of(0));
  pin(x_at);
  constexpr uint32_t kNextPiece = kTokenThreads * kTokenThreadColumns * 4;  // bytes of the stream
  const auto read_stream = [&](uint32_t i) {
    return Eight{load_shared_4_floats(x_at + i * kNextPiece), load_shared_4_floats(x_at + i * kNextPiece + 16)};
  };
  const bool has_first = warp_has(0, p.steps * kStep);
  const ActivationPlace place(p.steps, column_of(0));
  // Without initial values, the compiler would keep them in local memory between calls.
  Eight weight[kPieces] = {}, norm[kPieces] = {}, e[kPieces] = {}, old = {};
  float part[4] = {};  // |x|^2, |delta|^2, x.e, |e|^2
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (column_of(i) >= d) continue;
    norm[i] = normalises ? read_eight(p.next_norm + column_of(i)) : same_eight(1.0f);
    if (absorbs) weight[i] = read_eight(p.delta_norm + column_of(i));
    const Eight stream = read_stream(i);
    part[0] += dot_of(stream, stream);
    if constexpr (kPieces == 1) old = stream;  // two would take too many registers
  }
  if (absorbs) {
    await_delta<kPieces, kMixture>(p, d, eps, shared.serial, BlockSums(shared.sums + 4 * kTokenWarps), e);
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      if (column_of(i) >= d) continue;
      const Eight stream = kPieces == 1 ? old : read_stream(i);
      part[1] += dot_of(e[i], e[i]);
      e[i] = scaled(e[i], 1.0f, weight[i]);
      part[2] += dot_of(stream, e[i]);
      part[3] += dot_of(e[i], e[i]);
    }
  }
  __syncwarp();
  sums.put(part);
  token_barrier();
  const float4 total = sums.take();
  const float f = absorbs ? rsqrt_fast(total.y * inverse_d + eps) : 0.0f;
  const float squares = total.x + f * (2.0f * total.z + f * total.w);
  const float times = normalises ? scale * rsqrt_fast(scale * scale * squares * inverse_d + eps) : scale;
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (i == 0 ? !has_first : !warp_has(i, p.steps * kStep)) break;
    const uint32_t column = column_of(i);
    Eight v = same_eight(0.0f);
    if (column < d) v = joined(kPieces == 1 ? old : read_stream(i), f, e[i], 1.0f);
    const Eight normed = scaled(v, 1.0f, norm[i]);
    if (i == 0) {
      store_activations(normed, times, kind.floats, kind.with_sums, place);
    } else {
      store_activations(normed, times, kind.floats, kind.with_sums, ActivationPlace(p.steps, column));
    }
    if (!absorbs || column >= d) continue;
    const Eight kept = scaled(v, scale, same_eight(1.0f));
    store_shared(x_at + i * kNextPiece, kept.low);
    store_shared(x_at + i * kNextPiece + 16, kept.high);
  }
}

// A vector as it is.
__device__ __noinline__ void vector_activations(uint32_t stage) {
  const TokenShared& shared = token_shared();
  const TokenProduct& p = shared.window[stage].stage.product;
  const uint32_t tag = version_tag(shared.serial, p.in_version), width = p.steps * kStep;
  const auto* in = static_cast<const TaggedWord*>(p.in);
  const ActivationKind kind(p.packing);
  EightWords words;
  if (column_of(0) < p.columns) words.load(in + column_of(0));
#pragma unroll 1
  for (uint32_t piece = 0; warp_has(piece, width); ++piece) {
    const uint32_t column = column_of(piece), following = column_of(piece + 1);
    const ActivationPlace place(p.steps, column);
    EightWords next;
    if (following < p.columns) next.load(in + following);
    const Eight v = column < p.columns ? words.await(in + column, tag) : same_eight(0.0f);
    __syncwarp();
    store_activations(v, 1.0f, kind.floats, kind.with_sums, place);
    words = next;
  }
}

// A run of 16 values as it travels.
struct RunWords {
  RunWord first, second, third;
  __device__ void await(const TaggedRun* from, uint32_t tag) {
    while (true) {
      first = load_run_word(from, 0), second = load_run_word(from, 1), third = load_run_word(from, 2);
      if (first.tag == tag && second.tag == tag && third.tag == tag) return;
      pause_before_asking();
    }
  }
};

// The results of GEGLU, rounded by who made them. In the experts' down product the experts in use stand one after the
// other, each padded to whole steps, so that one product adds them up.
__device__ __noinline__ void run_activations(uint32_t stage) {
  const TokenShared& shared = token_shared();
  const TokenProduct& p = shared.window[stage].stage.product;
  const TokenActivations to = activations_at(token_region(), p.steps);
  const uint32_t tag = version_tag(shared.serial, p.in_version), runs = p.steps * kStepRuns;
  const auto* in = static_cast<const TaggedRun*>(p.in);
  const ActivationKind kind(p.packing);
#pragma unroll 1
  for (uint32_t run = threadIdx.x; run < runs; run += kTokenThreads) {
    const uint32_t expert = p.expert_steps == 0 ? 0 : __umulhi(run * kTokenRun, p.expert_inverse);
    const uint32_t within = run - expert * p.expert_steps * kStepRuns;
    RunWords words{};
    if (within * kTokenRun < p.columns) words.await(in + expert * (p.columns / kTokenRun) + within, tag);
    const uint4 high = make_uint4(words.first.a, words.first.b, words.first.c, words.second.a);
    const uint4 low = make_uint4(words.second.b, words.second.c, words.third.a, words.third.b);
    const float scale = __uint_as_float(words.third.c);
    const uint32_t step = run / kStepRuns, place = run % 2 * 8 + run % kStepRuns / 2;
    if (kind.floats) {
      float* values = to.values + run * kTokenRun;
      const auto value = [&](uint32_t h, uint32_t l, uint32_t i) {
        return scale * static_cast<float>(128 * static_cast<int8_t>(h >> 8 * i) + static_cast<int>(l >> 8 * i & 0xff));
      };
      const uint32_t hs[4] = {high.x, high.y, high.z, high.w}, ls[4] = {low.x, low.y, low.z, low.w};
#pragma unroll
      for (uint32_t w = 0; w < 4; ++w) {
        reinterpret_cast<float4*>(values)[w] =
            make_float4(value(hs[w], ls[w], 0), value(hs[w], ls[w], 1), value(hs[w], ls[w], 2), value(hs[w], ls[w], 3));
      }
      continue;
    }
    to.words[step * kStepQuads + place] = high;
    to.words[step * kStepQuads + kStepRuns + place] = low;
    to.scales[step * kStepRuns + place] = scale;
    if (kind.with_sums) {
      const uint4 ones = make_uint4(0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u);
      to.sums[step * kStepRuns + place] = scale * static_cast<float>(128 * dot16(high, ones, 0) + dot16(low, ones, 0));
    }
  }
}

}  // namespace carat::cuda
