#pragma once

// Device code shared by the kernels that normalise and quantise activations. All functions are called by a whole block
// of kRowThreads threads; thread t owns columns 4 t ... 4 t + 3 of every slab of 1024.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "exec/cuda/kernels/activation.h"

namespace carat::cuda {

inline constexpr uint32_t kRowThreads = 256;
inline constexpr uint32_t kSlab = 4 * kRowThreads;

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// Sum over the block; `scratch` holds 8 floats. Two barriers, so the scratch can be used again at once.
__device__ __forceinline__ float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < static_cast<int>(kRowThreads / 32); ++w) total += scratch[w];
  return total;
}

__device__ __forceinline__ float4 load4(const float* row, uint32_t column, uint32_t d) {
  if (column + 4 <= d && (d & 3) == 0) return *reinterpret_cast<const float4*>(row + column);
  float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (column < d) v.x = row[column];
  if (column + 1 < d) v.y = row[column + 1];
  if (column + 2 < d) v.z = row[column + 2];
  if (column + 3 < d) v.w = row[column + 3];
  return v;
}

__device__ __forceinline__ float4 load4(const __nv_bfloat16* row, uint32_t column, uint32_t d) {
  if (column + 4 <= d && (d & 3) == 0) {
    const uint2 raw = *reinterpret_cast<const uint2*>(row + column);
    return make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u), __uint_as_float(raw.y << 16),
                       __uint_as_float(raw.y & 0xffff0000u));
  }
  float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (column < d) v.x = __bfloat162float(row[column]);
  if (column + 1 < d) v.y = __bfloat162float(row[column + 1]);
  if (column + 2 < d) v.z = __bfloat162float(row[column + 2]);
  if (column + 3 < d) v.w = __bfloat162float(row[column + 3]);
  return v;
}

__device__ __forceinline__ void store4(__nv_bfloat16* row, uint32_t column, uint32_t d, const float4& v) {
  if (column + 4 <= d && (d & 3) == 0) {
    const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
    *reinterpret_cast<uint2*>(row + column) =
        make_uint2(*reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
    return;
  }
  if (column < d) row[column] = __float2bfloat16_rn(v.x);
  if (column + 1 < d) row[column + 1] = __float2bfloat16_rn(v.y);
  if (column + 2 < d) row[column + 2] = __float2bfloat16_rn(v.z);
  if (column + 3 < d) row[column + 3] = __float2bfloat16_rn(v.w);
}

__device__ __forceinline__ void store4(float* row, uint32_t column, uint32_t d, const float4& v) {
  if (column + 4 <= d && (d & 3) == 0) {
    *reinterpret_cast<float4*>(row + column) = v;
    return;
  }
  if (column < d) row[column] = v.x;
  if (column + 1 < d) row[column + 1] = v.y;
  if (column + 2 < d) row[column + 2] = v.z;
  if (column + 3 < d) row[column + 3] = v.w;
}

__device__ __forceinline__ float dot4(const float4& v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }

// Quantises four values of a block of 32 held by eight neighbouring threads and stores them.
__device__ __forceinline__ void quantise4(const float4& v, uint32_t column, uint32_t* words, BlockMeta* meta) {
  float largest = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
#pragma unroll
  for (int offset = 1; offset < 8; offset <<= 1)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  const float scale = largest * (1.0f / 127.0f);
  const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
  const int a = __float2int_rn(v.x * inverse), b = __float2int_rn(v.y * inverse);
  const int c = __float2int_rn(v.z * inverse), e = __float2int_rn(v.w * inverse);
  int sum = a + b + c + e;
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  const int other = __shfl_xor_sync(0xffffffffu, sum, 4);
  const uint32_t step = column / kStep, in_step = column % kStep;
  const uint32_t block = in_step / 32, offset = in_step % 32;
  words[step * 64 + (offset / 16 * 8 + block) * 4 + offset % 16 / 4] =
      (a & 0xff) | ((b & 0xff) << 8) | ((c & 0xff) << 16) | (static_cast<uint32_t>(e) << 24);
  if (offset == 0) {
    // A NaN or infinity must stay visible: it makes the scale non-finite and with it every product.
    meta[step * 8 + block] = BlockMeta{scale, static_cast<int16_t>(sum), static_cast<int16_t>(other)};
  }
}

// Quantises a block of 32 columns held one per lane by a warp. `column` is the lane's own; words, meta and values (may
// be null) belong to its row.
__device__ __forceinline__ void quantise_warp(float v, uint32_t column, uint32_t* words, BlockMeta* meta,
                                              float* values) {
  const uint32_t lane = threadIdx.x & 31;
  float largest = fabsf(v);
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
  const int q = __float2int_rn(v * inverse);
  int sum = q;
#pragma unroll
  for (int offset = 8; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  const int other = __shfl_xor_sync(0xffffffffu, sum, 16);
  const int b1 = __shfl_down_sync(0xffffffffu, q, 1), b2 = __shfl_down_sync(0xffffffffu, q, 2);
  const int b3 = __shfl_down_sync(0xffffffffu, q, 3);
  const uint32_t step = column / kStep, block = column % kStep / 32;
  if (lane % 4 == 0) {
    words[step * 64 + (lane / 16 * 8 + block) * 4 + lane % 16 / 4] =
        (q & 0xff) | ((b1 & 0xff) << 8) | ((b2 & 0xff) << 16) | (static_cast<uint32_t>(b3) << 24);
  }
  if (lane == 0) {
    meta[step * 8 + block] =
        BlockMeta{largest * (1.0f / 127.0f), static_cast<int16_t>(sum), static_cast<int16_t>(other)};
  }
  if (values != nullptr) values[column] = v;
}

// Computes one row of ResidualNorm into `values` (shared or global memory, [columns padded to a multiple of 4]); each
// thread reads back only what it wrote. `writer` decides whether this block stores x_out.
template <typename Delta>
__device__ void residual_norm_row(const ResidualNormOf<Delta>& a, uint32_t row, bool writer, float* values,
                                  float* scratch) {
  const float* x = a.x + static_cast<uint64_t>(row) * a.d;
  const Delta* delta = a.delta == nullptr ? nullptr : a.delta + static_cast<uint64_t>(row) * a.d;
  const Delta* experts = a.experts == nullptr ? nullptr : a.experts + static_cast<uint64_t>(row) * a.d;
  const float inverse_d = 1.0f / static_cast<float>(a.d);

  float dense_factor = 1.0f, experts_factor = 0.0f;
  if (experts != nullptr) {
    float dense_squares = 0.0f, experts_squares = 0.0f;
    for (uint32_t c = 4 * threadIdx.x; c < a.d; c += kSlab) {
      dense_squares += dot4(load4(delta, c, a.d));
      experts_squares += dot4(load4(experts, c, a.d));
    }
    dense_factor = rsqrtf(block_sum(dense_squares, scratch) * inverse_d + a.eps);
    experts_factor = rsqrtf(block_sum(experts_squares, scratch) * inverse_d + a.eps);
  }

  float delta_factor = 0.0f;
  if (delta != nullptr) {
    float squares = 0.0f;
    for (uint32_t c = 4 * threadIdx.x; c < a.d; c += kSlab) {
      float4 f = load4(delta, c, a.d);
      if (experts != nullptr) {
        const float4 g = load4(experts, c, a.d);
        const float4 wf = load4(a.dense_norm, c, a.d), wg = load4(a.experts_norm, c, a.d);
        f = make_float4(f.x * dense_factor * wf.x + g.x * experts_factor * wg.x,
                        f.y * dense_factor * wf.y + g.y * experts_factor * wg.y,
                        f.z * dense_factor * wf.z + g.z * experts_factor * wg.z,
                        f.w * dense_factor * wf.w + g.w * experts_factor * wg.w);
      }
      squares += dot4(f);
      *reinterpret_cast<float4*>(values + c) = f;
    }
    delta_factor = rsqrtf(block_sum(squares, scratch) * inverse_d + a.eps);
  }

  float squares = 0.0f;
  for (uint32_t c = 4 * threadIdx.x; c < a.d; c += kSlab) {
    float4 v = load4(x, c, a.d);
    if (delta != nullptr) {
      const float4 f = *reinterpret_cast<const float4*>(values + c);
      const float4 w = load4(a.delta_norm, c, a.d);
      v = make_float4((v.x + f.x * delta_factor * w.x) * a.scale, (v.y + f.y * delta_factor * w.y) * a.scale,
                      (v.z + f.z * delta_factor * w.z) * a.scale, (v.w + f.w * delta_factor * w.w) * a.scale);
    }
    if (writer && a.x_out != nullptr) store4(a.x_out + static_cast<uint64_t>(row) * a.d, c, a.d, v);
    squares += dot4(v);
    *reinterpret_cast<float4*>(values + c) = v;
  }
  if (a.next_norm == nullptr) return;
  const float factor = rsqrtf(block_sum(squares, scratch) * inverse_d + a.eps);
  for (uint32_t c = 4 * threadIdx.x; c < a.d; c += kSlab) {
    const float4 v = *reinterpret_cast<const float4*>(values + c);
    const float4 w = load4(a.next_norm, c, a.d);
    *reinterpret_cast<float4*>(values + c) =
        make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w);
  }
}

// Quantises a row whose float4 pieces each thread owns (as residual_norm_row leaves them); pads with zeros to whole
// steps.
__device__ inline void quantise_row(const float* values, uint32_t columns, uint32_t steps, uint32_t* words,
                                    BlockMeta* meta, float* floats) {
  for (uint32_t c = 4 * threadIdx.x; c < steps * kStep; c += kSlab) {
    const float4 v = load4(values, c, columns);
    quantise4(v, c, words, meta);
    if (floats != nullptr) *reinterpret_cast<float4*>(floats + c) = v;
  }
}

}  // namespace carat::cuda
