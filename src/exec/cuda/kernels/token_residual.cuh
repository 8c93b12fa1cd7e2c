#pragma once

// Device code: the activations of a product, made by every block for itself. The residual stream lies in the shared
// memory of each block; all of them update it alike, so it never travels.
#include "exec/cuda/kernels/token_product.cuh"

namespace carat::cuda {

inline constexpr uint32_t kTokenWarps = kTokenThreads / 32;

// Sum over the block; one barrier. `scratch`: kTokenWarps floats that no sum before the next barrier uses.
__device__ __forceinline__ float token_block_sum(float value, float* scratch) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (uint32_t w = 0; w < kTokenWarps; w += 4) {
    const float4 v = *reinterpret_cast<const float4*>(scratch + w);
    total += (v.x + v.y) + (v.z + v.w);
  }
  return total;
}

// Four sums with the same barrier. `scratch`: kTokenWarps float4.
__device__ __forceinline__ float4 token_block_sums(float4 value, float4* scratch) {
  value = make_float4(warp_sum(value.x), warp_sum(value.y), warp_sum(value.z), warp_sum(value.w));
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  const float4 mine = scratch[threadIdx.x % kTokenWarps];
  float4 total = mine;
#pragma unroll
  for (int offset = 1; offset < static_cast<int>(kTokenWarps); offset *= 2) {
    total = make_float4(total.x + __shfl_xor_sync(0xffffffffu, total.x, offset),
                        total.y + __shfl_xor_sync(0xffffffffu, total.y, offset),
                        total.z + __shfl_xor_sync(0xffffffffu, total.z, offset),
                        total.w + __shfl_xor_sync(0xffffffffu, total.w, offset));
  }
  return total;
}

__device__ __forceinline__ float4 scaled(const float4& v, float factor, const float4& w) {
  return make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w);
}
__device__ __forceinline__ float4 sum_of(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 no_floats() { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }

// Rounds kQuads runs of four columns, 4 kTokenThreads apart, as quantise4 does, all of them at once: the time from a
// vector to its activations is time in which nothing is multiplied. `first`: this thread's first column; runs from
// `width` on are left out. Whole warps have work or none: widths are whole steps of 64 runs.
template <int kQuads>
__device__ __forceinline__ void store_activations(const float4 (&v)[kQuads], uint32_t first, uint32_t width,
                                                  bool floats, const TokenActivations& to) {
  if (floats) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const uint32_t column = first + i * 4 * kTokenThreads;
      if (column < width) *reinterpret_cast<float4*>(to.values + column) = v[i];
    }
    return;
  }
  float largest[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    largest[i] = max_or_nan(max_or_nan(fabsf(v[i].x), fabsf(v[i].y)), max_or_nan(fabsf(v[i].z), fabsf(v[i].w)));
  }
#pragma unroll
  for (int offset = 1; offset <= 2; ++offset) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      largest[i] = max_or_nan(largest[i], __shfl_xor_sync(0xffffffffu, largest[i], offset));
  }
  int sum[kQuads];
  uint32_t high[kQuads], low[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const float inverse = largest[i] > 0.0f ? __fdividef(kLevels, largest[i]) : 0.0f;
    // Adding 1.5 * 2^23 rounds to an integer in the low bits.
    const auto rounded = [&](float x) { return __float_as_int(x * inverse + 12582912.0f) - 0x4b400000; };
    const int a = rounded(v[i].x), b = rounded(v[i].y), c = rounded(v[i].z), d = rounded(v[i].w);
    sum[i] = (a + b) + (c + d);
    const int ha = high_part(a), hb = high_part(b), hc = high_part(c), hd = high_part(d);
    const auto pack = [](uint32_t p, uint32_t q, uint32_t r, uint32_t s) {
      return __byte_perm(__byte_perm(p, q, 0x0040), __byte_perm(r, s, 0x0040), 0x5410);
    };
    high[i] = pack(ha, hb, hc, hd);
    low[i] = pack(a - 128 * ha, b - 128 * hb, c - 128 * hc, d - 128 * hd);
  }
#pragma unroll
  for (int offset = 1; offset <= 2; ++offset) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], offset);
  }
  const uint32_t in_step = first % kStep, block = in_step / 32, half = in_step % 32 / 16;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const uint32_t column = first + i * 4 * kTokenThreads;  // the same place in another step
    if (column >= width) continue;
    const uint32_t step = column / kStep;
    uint32_t* words = to.words + step * kStepWords + (half * 8 + block) * 4 + in_step % 16 / 4;
    words[0] = high[i];
    words[64] = low[i];
    if (first % 16 == 0) {
      // A NaN or infinity must stay visible: it makes the scale non-finite and with it every product.
      BlockMeta& meta = to.meta[step * kStepBlocks + block];
      meta.scale[half] = largest[i] * (1.0f / kLevels);
      meta.sum[half] = sum[i];
    }
  }
}

// kPieces runs of four values, 4 kTokenThreads apart, from run `quad` on, of those that begin before `columns`; the
// others are zero. All loads are under way before the first is looked at.
template <int kPieces>
__device__ __forceinline__ void await_pieces(const TaggedQuad* from, uint32_t quad, uint32_t columns, uint32_t tag,
                                             float4 (&out)[kPieces]) {
  QuadWord words[kPieces];
  bool ready;
  do {
    ready = true;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (4 * (quad + i * kTokenThreads) < columns) words[i] = load4_tagged(from + quad + i * kTokenThreads);
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (4 * (quad + i * kTokenThreads) < columns) ready = ready && words[i].has(tag);
    }
  } while (!ready);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    out[i] = 4 * (quad + i * kTokenThreads) < columns ? words[i].values() : no_floats();
  }
}

// Both branches of a mixture of experts, normalised and added up: `delta` holds the dense one. `sums`:
// 2 kTokenWarps floats.
template <int kPieces>
__device__ __forceinline__ void add_experts(const TokenProduct& p, const TokenJob& job, uint32_t serial, float* sums,
                                            float4 (&delta)[kPieces]) {
  float4 experts[kPieces];
  await_pieces<kPieces>(p.experts, threadIdx.x, job.d, stage_tag(serial, p.experts_stage), experts);
  float dense_squares = 0.0f, expert_squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    dense_squares += dot4(delta[i]);
    expert_squares += dot4(experts[i]);
  }
  const float inverse_d = 1.0f / static_cast<float>(job.d);
  dense_squares = token_block_sum(dense_squares, sums);
  expert_squares = token_block_sum(expert_squares, sums + kTokenWarps);
  const float dense_factor = rsqrtf(dense_squares * inverse_d + job.eps);
  const float expert_factor = rsqrtf(expert_squares * inverse_d + job.eps);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const uint32_t c = 4 * (threadIdx.x + i * kTokenThreads);
    if (c >= job.d) continue;
    delta[i] = sum_of(scaled(delta[i], dense_factor, *reinterpret_cast<const float4*>(p.dense_norm + c)),
                      scaled(experts[i], expert_factor, *reinterpret_cast<const float4*>(p.experts_norm + c)));
  }
}

// Absorbs what the stream still has to absorb, and leaves its norm as activations. x: [d] in shared memory.
// `sums`: 6 kTokenWarps floats.
//
// The stream's new norm follows from sums over the old stream and the delta, so that one reduction does for both:
// |x + f e|^2 = |x|^2 + 2 f x.e + f^2 |e|^2 with e = delta * weight and f the factor of the delta's norm.
template <int kPieces>
__device__ __forceinline__ void residual_activations(const TokenProduct& p, const TokenJob& job, uint32_t serial,
                                                     float* x, float* sums, const TokenActivations& to) {
  const auto at = [](int i) { return 4 * (threadIdx.x + i * kTokenThreads); };
  const auto read = [&](const float* from, int i) {
    return at(i) < job.d ? *reinterpret_cast<const float4*>(from + at(i)) : no_floats();
  };
  const float inverse_d = 1.0f / static_cast<float>(job.d);
  float4 stream[kPieces], next[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    stream[i] = read(x, i);
    next[i] = p.next_norm != nullptr ? read(p.next_norm, i) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
  }
  float stream_squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) stream_squares += dot4(stream[i]);
  float factor = 1.0f;
  if (p.in != nullptr) {
    float4 delta[kPieces], weight[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) weight[i] = read(p.delta_norm, i);
    await_pieces<kPieces>(static_cast<const TaggedQuad*>(p.in), threadIdx.x, job.d, stage_tag(serial, p.in_stage),
                          delta);
    if (p.experts != nullptr) add_experts<kPieces>(p, job, serial, sums + 4 * kTokenWarps, delta);
    float4 part = make_float4(stream_squares, 0.0f, 0.0f, 0.0f);  // |x|^2, |delta|^2, x.e, |e|^2
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const float4 e = scaled(delta[i], 1.0f, weight[i]);
      part.y += dot4(delta[i]);
      part.z += stream[i].x * e.x + stream[i].y * e.y + stream[i].z * e.z + stream[i].w * e.w;
      part.w += dot4(e);
      delta[i] = e;
    }
    const float4 total = token_block_sums(part, reinterpret_cast<float4*>(sums));
    const float delta_factor = rsqrtf(total.y * inverse_d + job.eps);
    const float squares = total.x + delta_factor * (2.0f * total.z + delta_factor * total.w);
    if (p.next_norm != nullptr) factor = rsqrtf(p.scale * p.scale * squares * inverse_d + job.eps);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const float4 e = delta[i];
      stream[i] =
          make_float4((stream[i].x + delta_factor * e.x) * p.scale, (stream[i].y + delta_factor * e.y) * p.scale,
                      (stream[i].z + delta_factor * e.z) * p.scale, (stream[i].w + delta_factor * e.w) * p.scale);
      if (at(i) < job.d) *reinterpret_cast<float4*>(x + at(i)) = stream[i];
    }
  } else if (p.next_norm != nullptr) {
    factor = rsqrtf(token_block_sum(stream_squares, sums) * inverse_d + job.eps);
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) stream[i] = scaled(stream[i], factor, next[i]);
  store_activations<kPieces>(stream, at(0), p.steps * kStep, is_float_packing(p.packing), to);
}

__device__ __forceinline__ void vector_activations(const TokenProduct& p, uint32_t serial, const TokenActivations& to) {
  constexpr int kBatch = 2;
  const uint32_t tag = stage_tag(serial, p.in_stage), width = p.steps * kStep;
  const auto* in = static_cast<const TaggedQuad*>(p.in);
#pragma unroll 1
  for (uint32_t quad = threadIdx.x; 4 * quad < width; quad += kBatch * kTokenThreads) {
    float4 v[kBatch];
    await_pieces<kBatch>(in, quad, p.columns, tag, v);
    store_activations<kBatch>(v, 4 * quad, width, is_float_packing(p.packing), to);
  }
}

// The results of GEGLU. In the experts' down product the experts in use stand one after the other, each times its
// weight, so that one product adds them up.
__device__ __forceinline__ void pair_activations(const TokenProduct& p, uint32_t serial, const float* expert_weights,
                                                 const TokenActivations& to) {
  constexpr int kBatch = 5;
  const uint32_t tag = stage_tag(serial, p.in_stage), width = p.steps * kStep;
  const auto* in = static_cast<const uint64_t*>(p.in);
  wait_at_gate(p.in_count, [&](uint32_t i) { return pair_has_tag(load_word(in + i), tag); });
  __syncthreads();
#pragma unroll 1
  for (uint32_t first = 4 * threadIdx.x; first < width; first += kBatch * 4 * kTokenThreads) {
    ulonglong2 words[kBatch];
    float weight[kBatch];
    bool ready;
    do {
      ready = true;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const uint32_t c = first + i * 4 * kTokenThreads;
        const uint32_t slot = p.expert_steps == 0 ? 0 : __umulhi(c, p.expert_inverse);
        const uint32_t column = c - slot * p.expert_steps * kStep;
        weight[i] = 0.0f;
        words[i] = make_ulonglong2(0, 0);
        if (c >= width || column >= p.columns) continue;
        weight[i] = p.expert_steps == 0 ? 1.0f : expert_weights[slot];
        words[i] = load_pairs(in + (slot * p.columns + column) / 2);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (weight[i] != 0.0f) ready = ready && pair_has_tag(words[i].x, tag) && pair_has_tag(words[i].y, tag);
      }
    } while (!ready);
    float4 v[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const float2 a = pair_values(words[i].x), b = pair_values(words[i].y);
      v[i] = make_float4(a.x * weight[i], a.y * weight[i], b.x * weight[i], b.y * weight[i]);
    }
    store_activations<kBatch>(v, first, width, is_float_packing(p.packing), to);
  }
}

}  // namespace carat::cuda
