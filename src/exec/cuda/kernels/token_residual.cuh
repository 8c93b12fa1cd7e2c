#pragma once

// Device code: the activations of a product, made by every block for itself. The residual stream lies in the shared
// memory of each block; all of them update it alike, so it never travels.
//
// The time from a vector to its activations is time in which nothing is multiplied, and what counts is instructions:
// four warps share a scheduler. Work that only some warps have is behind branches that whole warps take or not.
#include "exec/cuda/kernels/token_product.cuh"

namespace carat::cuda {

// Four sums over the block; one barrier. `scratch`: 4 kTokenWarps floats that no sum before the next barrier uses.
__device__ __forceinline__ float4 token_block_sums(const float4& value, float* scratch) {
  const uint32_t lane = threadIdx.x % 32;
  const float mine = reduce_four(value.x, value.y, value.z, value.w);
  if (lane % 8 == 0) scratch[lane / 8 * kTokenWarps + threadIdx.x / 32] = mine;
  token_barrier();
  static_assert(kTokenWarps == 16);
  const float2 two = reinterpret_cast<const float2*>(scratch)[lane];
  float total = two.x + two.y;
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
  return make_float4(__shfl_sync(0xffffffffu, total, 0), __shfl_sync(0xffffffffu, total, 8),
                     __shfl_sync(0xffffffffu, total, 16), __shfl_sync(0xffffffffu, total, 24));
}

__device__ __forceinline__ float4 scaled(const float4& v, float factor, const float4& w) {
  return make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w);
}
__device__ __forceinline__ float4 sum_of(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 no_floats() { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }

// Vectors are dealt out in runs of four columns: run q of a vector, run q + kTokenThreads, ... belong to thread q. True
// where this thread's warp has piece `piece` of a vector of `width` columns, which are whole steps of 64 runs.
__device__ __forceinline__ bool warp_has(uint32_t piece, uint32_t width) {
  return 4 * ((threadIdx.x & ~31u) + piece * kTokenThreads) < width;
}

// Rounds four columns from `column` on; four neighbouring lanes share a run of 16. By whole warps. What is stored is
// read after the next barrier.
__device__ __forceinline__ void store_activations(const float4& v, uint32_t column, bool floats, bool with_sums,
                                                  const TokenActivations& to) {
  if (floats) {
    *reinterpret_cast<float4*>(to.values + column) = v;
    return;
  }
  float largest = max_or_nan(max_or_nan(fabsf(v.x), fabsf(v.y)), max_or_nan(fabsf(v.z), fabsf(v.w)));
  largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
  const float inverse = largest > 0.0f ? __fdividef(kLevels, largest) : 0.0f;
  const uint32_t a = rounded_bits(v.x, inverse), b = rounded_bits(v.y, inverse);
  const uint32_t c = rounded_bits(v.z, inverse), d = rounded_bits(v.w, inverse);
  // The lowest byte of each word, in order.
  const auto pack = [](uint32_t p, uint32_t q, uint32_t r, uint32_t s) {
    return __byte_perm(__byte_perm(p, q, 0x0040), __byte_perm(r, s, 0x0040), 0x5410);
  };
  const uint32_t run = column % 32 / 16 * 8 + column % kStep / 32;
  const uint32_t index = column / kStep * kStepQuads + run;
  auto* words = reinterpret_cast<uint32_t*>(to.words + index) + column % 16 / 4;
  words[0] = pack(a >> 7, b >> 7, c >> 7, d >> 7);
  words[4 * kStepRuns] = pack(a, b, c, d) & 0x7f7f7f7fu;
  // A NaN or infinity must stay visible: it makes the scale non-finite and with it every product.
  const uint32_t meta = column / kStep * kStepRuns + run;
  const float scale = largest * (1.0f / kLevels);
  if (column % 16 == 0) to.scales[meta] = scale;
  if (!with_sums) return;
  int sum = static_cast<int>(a + b + c + d - 4 * 0x4b400000u);
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (column % 16 == 0) to.sums[meta] = scale * static_cast<float>(sum);
}

// What a product wants of its activations.
struct ActivationKind {
  bool floats, with_sums;
  __device__ explicit ActivationKind(Packing packing)
      : floats(is_float_packing(packing)), with_sums(packing == Packing::kQ4K || packing == Packing::kQ5K) {}
};

__device__ __forceinline__ float4 await_quad(const TaggedQuad* at, uint32_t tag, QuadWord word) {
  while (!word.has(tag)) word = load4_tagged(at);
  return word.values();
}

// What the stream absorbs in a mixture of experts: both branches, normalised, to `sum` (shared memory, as `other`).
__device__ __noinline__ void add_experts(const TokenProduct& p, uint32_t d, float eps, uint32_t serial, float* scratch,
                                         float* sum, float* other) {
  assume_shared(&p), assume_shared(scratch), assume_shared(sum), assume_shared(other);
  const auto* dense = static_cast<const TaggedQuad*>(p.in);
  float4 squares = no_floats();
#pragma unroll 1
  for (uint32_t c = 4 * threadIdx.x; c < d; c += 4 * kTokenThreads) {
    const QuadWord first = load4_tagged(dense + c / 4), second = load4_tagged(p.experts + c / 4);
    const float4 a = await_quad(dense + c / 4, stage_tag(serial, p.in_stage), first);
    const float4 b = await_quad(p.experts + c / 4, stage_tag(serial, p.experts_stage), second);
    squares.x += dot4(a);
    squares.y += dot4(b);
    *reinterpret_cast<float4*>(sum + c) = a;
    *reinterpret_cast<float4*>(other + c) = b;
  }
  squares = token_block_sums(squares, scratch);
  const float inverse_d = __fdividef(1.0f, static_cast<float>(d));
  const float dense_factor = rsqrtf(squares.x * inverse_d + eps), expert_factor = rsqrtf(squares.y * inverse_d + eps);
#pragma unroll 1
  for (uint32_t c = 4 * threadIdx.x; c < d; c += 4 * kTokenThreads) {
    const auto read = [&](const float* from) { return *reinterpret_cast<const float4*>(from + c); };
    *reinterpret_cast<float4*>(sum + c) = sum_of(scaled(read(sum), dense_factor, read(p.dense_norm)),
                                                 scaled(read(other), expert_factor, read(p.experts_norm)));
  }
}

// Absorbs what the stream still has to absorb, and leaves its norm as activations. x: [d] in shared memory.
// `scratch`: 8 kTokenWarps floats. Two vectors lie behind the activations until they are made: what is absorbed, and
// the weights of the norm.
//
// The stream's new norm follows from sums over the old stream and the delta, so that one reduction does for both:
// |x + f e|^2 = |x|^2 + 2 f x.e + f^2 |e|^2 with e = delta * weight and f the factor of the delta's norm.
__device__ __noinline__ void residual_activations(const TokenProduct& p, uint32_t d, float eps, uint32_t serial,
                                                  float* x, float* scratch, unsigned char* region) {
  assume_shared(&p), assume_shared(x), assume_shared(scratch), assume_shared(region);
  const ActivationKind kind(p.packing);
  const TokenActivations to = activations_at(region, p.steps);
  const uint32_t width = p.steps * kStep, tag = stage_tag(serial, p.in_stage);
  float* absorbed = kind.floats ? to.values + width : to.sums + p.steps * kStepRuns;
  float* next = absorbed + width;
  const auto* in = static_cast<const TaggedQuad*>(p.in);
  const bool awaits = in != nullptr && p.experts == nullptr;
  const auto at = [](float* vector, uint32_t c) { return reinterpret_cast<float4*>(vector + c); };
  const auto read = [](const float* from, uint32_t c) { return *reinterpret_cast<const float4*>(from + c); };
  if (in != nullptr && p.experts != nullptr) add_experts(p, d, eps, serial, scratch + 4 * kTokenWarps, absorbed, next);

  float4 part = no_floats();  // |x|^2, |delta|^2, x.e, |e|^2
  QuadWord word{};
  if (awaits && 4 * threadIdx.x < d) word = load4_tagged(in + threadIdx.x);
#pragma unroll 1
  for (uint32_t c = 4 * threadIdx.x; c < d; c += 4 * kTokenThreads) {
    QuadWord following{};
    if (awaits && c + 4 * kTokenThreads < d) following = load4_tagged(in + c / 4 + kTokenThreads);
    const float4 norm = p.next_norm != nullptr ? read(p.next_norm, c) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    const float4 stream = read(x, c);
    part.x += dot4(stream);
    if (in != nullptr) {
      const float4 weight = read(p.delta_norm, c);
      const float4 delta = awaits ? await_quad(in + c / 4, tag, word) : read(absorbed, c);
      const float4 e = scaled(delta, 1.0f, weight);
      part.y += dot4(delta);
      part.z += stream.x * e.x + stream.y * e.y + stream.z * e.z + stream.w * e.w;
      part.w += dot4(e);
      *at(absorbed, c) = e;
    }
    *at(next, c) = norm;
    word = following;
  }
  const float inverse_d = __fdividef(1.0f, static_cast<float>(d));
  float delta_factor = 0.0f, factor = 1.0f;
  if (in != nullptr || p.next_norm != nullptr) {
    const float4 total = token_block_sums(part, scratch);
    if (in != nullptr) delta_factor = rsqrtf(total.y * inverse_d + eps);
    const float squares = total.x + delta_factor * (2.0f * total.z + delta_factor * total.w);
    if (p.next_norm != nullptr) factor = rsqrtf(p.scale * p.scale * squares * inverse_d + eps);
  }
  const float scale = in != nullptr ? p.scale : 1.0f;
#pragma unroll 1
  for (uint32_t piece = 0; warp_has(piece, width); ++piece) {
    const uint32_t c = 4 * (threadIdx.x + piece * kTokenThreads);
    float4 v = no_floats();
    if (c < d) {
      v = read(x, c);
      if (in != nullptr) {
        const float4 e = read(absorbed, c);
        v = make_float4((v.x + delta_factor * e.x) * scale, (v.y + delta_factor * e.y) * scale,
                        (v.z + delta_factor * e.z) * scale, (v.w + delta_factor * e.w) * scale);
        *at(x, c) = v;
      }
      v = scaled(v, factor, read(next, c));
    }
    store_activations(v, c, kind.floats, kind.with_sums, to);
  }
}

// A vector as it is.
__device__ __noinline__ void vector_activations(const TokenProduct& p, uint32_t serial, unsigned char* region) {
  assume_shared(&p), assume_shared(region);
  const TokenActivations to = activations_at(region, p.steps);
  const uint32_t tag = stage_tag(serial, p.in_stage), width = p.steps * kStep;
  const auto* in = static_cast<const TaggedQuad*>(p.in);
  const ActivationKind kind(p.packing);
  QuadWord word{};
  if (4 * threadIdx.x < p.columns) word = load4_tagged(in + threadIdx.x);
#pragma unroll 1
  for (uint32_t piece = 0; warp_has(piece, width); ++piece) {
    const uint32_t c = 4 * (threadIdx.x + piece * kTokenThreads);
    QuadWord following{};
    if (c + 4 * kTokenThreads < p.columns) following = load4_tagged(in + c / 4 + kTokenThreads);
    const float4 v = c < p.columns ? await_quad(in + c / 4, tag, word) : no_floats();
    __syncwarp();
    store_activations(v, c, kind.floats, kind.with_sums, to);
    word = following;
  }
}

// The results of GEGLU, rounded by who made them. In the experts' down product the experts in use stand one after the
// other, each padded to whole steps, so that one product adds them up.
__device__ __noinline__ void run_activations(const TokenProduct& p, uint32_t serial, unsigned char* region) {
  assume_shared(&p), assume_shared(region);
  const TokenActivations to = activations_at(region, p.steps);
  const uint32_t tag = stage_tag(serial, p.in_stage), runs = p.steps * kStepRuns;
  const auto* in = static_cast<const TaggedRun*>(p.in);
  const ActivationKind kind(p.packing);
#pragma unroll 1
  for (uint32_t run = threadIdx.x; run < runs; run += kTokenThreads) {
    const uint32_t expert = p.expert_steps == 0 ? 0 : __umulhi(run * kTokenRun, p.expert_inverse);
    const uint32_t within = run - expert * p.expert_steps * kStepRuns;
    uint4 high = make_uint4(0, 0, 0, 0), low = high;
    float scale = 0.0f;
    if (within * kTokenRun < p.columns) {
      const TaggedRun* from = in + expert * (p.columns / kTokenRun) + within;
      RunWord first, second, third;
      do {
        first = load_run_word(from, 0), second = load_run_word(from, 1), third = load_run_word(from, 2);
      } while (first.tag != tag || second.tag != tag || third.tag != tag);
      high = make_uint4(first.a, first.b, first.c, second.a);
      low = make_uint4(second.b, second.c, third.a, third.b);
      scale = __uint_as_float(third.c);
    }
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
