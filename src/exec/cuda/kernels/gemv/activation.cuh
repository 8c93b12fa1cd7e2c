#pragma once

// Device code shared by the kernels that normalise and quantise activations. Unless they say otherwise, functions are
// called by a whole block of kRowThreads threads; thread t owns columns 4 t ... 4 t + 3 of every slab of 1024.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>
#include <type_traits>

#include "exec/cuda/kernels/gemv/activation.h"
#include "exec/cuda/kernels/ptx/arithmetic.cuh"

namespace carat::cuda {

inline constexpr uint32_t kRowThreads = 256;
inline constexpr uint32_t kSlab = 4 * kRowThreads;

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// Sum over the block. `scratch` holds a float for each warp that no other sum of the block is using; one barrier.
template <uint32_t kThreads = kRowThreads>
__device__ __forceinline__ float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < static_cast<int>(kThreads / 32); ++w) total += scratch[w];
  return total;
}
inline constexpr uint32_t kSumScratch = 4 * 8;  // floats: as many sums as one row needs

__device__ __forceinline__ float4 load4(const float* row, uint32_t column, uint32_t d) {
  if (column + 4 <= d && (d & 3) == 0) return *reinterpret_cast<const float4*>(row + column);
  float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (column < d) v.x = row[column];
  if (column + 1 < d) v.y = row[column + 1];
  if (column + 2 < d) v.z = row[column + 2];
  if (column + 3 < d) v.w = row[column + 3];
  return v;
}

// Of four bf16.
__device__ __forceinline__ float4 floats_of(const uint2& quad) {
  return make_float4(__uint_as_float(quad.x << 16), __uint_as_float(quad.x & 0xffff0000u),
                     __uint_as_float(quad.y << 16), __uint_as_float(quad.y & 0xffff0000u));
}
__device__ __forceinline__ float4 load4(const __nv_bfloat16* row, uint32_t column, uint32_t d) {
  if (column + 4 <= d && (d & 3) == 0) return floats_of(*reinterpret_cast<const uint2*>(row + column));
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

inline constexpr float kLevels = 16319.0f;  // 127 * 128 + 63: the largest whose high part still fits int8

__device__ __forceinline__ uint32_t pack_bytes(int a, int b, int c, int d) {
  return (a & 0xff) | ((b & 0xff) << 8) | ((c & 0xff) << 16) | (static_cast<uint32_t>(d) << 24);
}
// 128 h + l = value with |l| <= 64, so both fit int8.
__device__ __forceinline__ int high_part(int value) { return (value + 64) >> 7; }

// Rounds four of 16 neighbouring columns held by four neighbouring threads and stores them.
__device__ __forceinline__ void quantise4(const float4& v, uint32_t column, uint32_t* words, BlockMeta* meta) {
  float largest = max_or_nan(max_or_nan(fabsf(v.x), fabsf(v.y)), max_or_nan(fabsf(v.z), fabsf(v.w)));
  largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
  const float inverse = largest > 0.0f ? kLevels / largest : 0.0f;
  const int a = __float2int_rn(v.x * inverse), b = __float2int_rn(v.y * inverse);
  const int c = __float2int_rn(v.z * inverse), e = __float2int_rn(v.w * inverse);
  int sum = a + b + c + e;
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  const uint32_t step = column / kStep, in_step = column % kStep;
  const uint32_t block = in_step / 32, half = in_step % 32 / 16;
  uint32_t* to = words + step * kStepWords + (half * 8 + block) * 4 + in_step % 16 / 4;
  const int ha = high_part(a), hb = high_part(b), hc = high_part(c), he = high_part(e);
  to[0] = pack_bytes(ha, hb, hc, he);
  to[64] = pack_bytes(a - 128 * ha, b - 128 * hb, c - 128 * hc, e - 128 * he);
  if (column % 16 == 0) {
    // A NaN or infinity must stay visible: it makes the scale non-finite and with it every product.
    meta[step * 8 + block].scale[half] = largest * (1.0f / kLevels);
    meta[step * 8 + block].sum[half] = sum;
  }
}

// The same for 16 columns held one per lane by each half of a warp. `column` is the lane's own; words, meta and values
// (may be null) belong to its row. `store` is the same for all lanes of a half.
__device__ __forceinline__ void quantise_half_warp(float v, uint32_t column, bool store, uint32_t* words,
                                                   BlockMeta* meta, float* values) {
  float largest = fabsf(v);
#pragma unroll
  for (int offset = 8; offset > 0; offset >>= 1)
    largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  const float inverse = largest > 0.0f ? kLevels / largest : 0.0f;
  const int q = __float2int_rn(v * inverse);
  int sum = q;
#pragma unroll
  for (int offset = 8; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  const int q1 = __shfl_down_sync(0xffffffffu, q, 1), q2 = __shfl_down_sync(0xffffffffu, q, 2);
  const int q3 = __shfl_down_sync(0xffffffffu, q, 3);
  if (!store) return;
  const uint32_t step = column / kStep, block = column % kStep / 32, half = column % 32 / 16;
  if (column % 4 == 0) {
    uint32_t* to = words + step * kStepWords + (half * 8 + block) * 4 + column % 16 / 4;
    const int h0 = high_part(q), h1 = high_part(q1), h2 = high_part(q2), h3 = high_part(q3);
    to[0] = pack_bytes(h0, h1, h2, h3);
    to[64] = pack_bytes(q - 128 * h0, q1 - 128 * h1, q2 - 128 * h2, q3 - 128 * h3);
  }
  if (column % 16 == 0) {
    meta[step * 8 + block].scale[half] = largest * (1.0f / kLevels);
    meta[step * 8 + block].sum[half] = sum;
  }
  if (values != nullptr) values[column] = v;
}

// Computes one row of ResidualNorm into `values` (shared or global memory, [columns padded to a multiple of 4]); each
// thread reads back only what it wrote. kPieces: float4 pieces of the
// row a thread keeps in registers, so that all loads are issued before the first sum; enough for d <= 1024 kPieces.
// `scratch`: kSumScratch floats.
template <int kPieces, typename Delta>
__device__ void residual_norm_pieces(const ResidualNormOf<Delta>& a, uint32_t row, float* values, float* scratch) {
  const uint64_t first = static_cast<uint64_t>(row) * a.d;
  const float inverse_d = 1.0f / static_cast<float>(a.d);
  float4 x[kPieces], f[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const uint32_t c = 4 * threadIdx.x + i * kSlab;
    x[i] = load4(a.x + first, c, a.d);
    if (a.delta != nullptr) f[i] = load4(a.delta + first, c, a.d);
  }

  if (a.delta != nullptr && a.experts != nullptr) {
    float dense_squares = 0.0f, experts_squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      dense_squares += dot4(f[i]);
      experts_squares += dot4(load4(a.experts + first, 4 * threadIdx.x + i * kSlab, a.d));
    }
    const float dense_factor = rsqrtf(block_sum(dense_squares, scratch + 16) * inverse_d + a.eps);
    const float experts_factor = rsqrtf(block_sum(experts_squares, scratch + 24) * inverse_d + a.eps);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t c = 4 * threadIdx.x + i * kSlab;
      const float4 g = load4(a.experts + first, c, a.d);
      const float4 wf = load4(a.dense_norm, c, a.d), wg = load4(a.experts_norm, c, a.d);
      f[i] = make_float4(f[i].x * dense_factor * wf.x + g.x * experts_factor * wg.x,
                         f[i].y * dense_factor * wf.y + g.y * experts_factor * wg.y,
                         f[i].z * dense_factor * wf.z + g.z * experts_factor * wg.z,
                         f[i].w * dense_factor * wf.w + g.w * experts_factor * wg.w);
    }
  }

  if (a.delta != nullptr) {
    float squares = 0.0f;
    float4 w[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      w[i] = load4(a.delta_norm, 4 * threadIdx.x + i * kSlab, a.d);
      squares += dot4(f[i]);
    }
    const float factor = rsqrtf(block_sum(squares, scratch) * inverse_d + a.eps);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      x[i] = make_float4((x[i].x + f[i].x * factor * w[i].x) * a.scale, (x[i].y + f[i].y * factor * w[i].y) * a.scale,
                         (x[i].z + f[i].z * factor * w[i].z) * a.scale, (x[i].w + f[i].w * factor * w[i].w) * a.scale);
    }
  }
  float factor = 1.0f;
  float4 w[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) w[i] = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
  if (a.next_norm != nullptr) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      w[i] = load4(a.next_norm, 4 * threadIdx.x + i * kSlab, a.d);
      squares += dot4(x[i]);
    }
    factor = rsqrtf(block_sum(squares, scratch + 8) * inverse_d + a.eps);
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const uint32_t c = 4 * threadIdx.x + i * kSlab;
    if (c >= a.d) continue;
    if (a.x_out != nullptr) store4(a.x_out + first, c, a.d, x[i]);
    *reinterpret_cast<float4*>(values + c) = make_float4(x[i].x * factor * w[i].x, x[i].y * factor * w[i].y,
                                                         x[i].z * factor * w[i].z, x[i].w * factor * w[i].w);
  }
}

// Calls launch(std::integral_constant<int, pieces>) with the fewest pieces that hold a row of d columns.
template <typename Launcher>
void with_row_pieces(uint32_t d, const Launcher& launcher) {
  if (d <= 2 * kSlab) return launcher(std::integral_constant<int, 2>{});
  if (d <= 3 * kSlab) return launcher(std::integral_constant<int, 3>{});
  if (d <= 4 * kSlab) return launcher(std::integral_constant<int, 4>{});
  if (d <= 8 * kSlab) return launcher(std::integral_constant<int, 8>{});
  throw std::logic_error("internal check failed: rows of more than 8192 columns");
}

// Quantises a row whose float4 pieces each thread owns (as residual_norm_pieces leaves them); pads with zeros to whole
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
