#pragma once

// Device code: the values of one block of 32 columns of a packed matrix.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

__device__ __forceinline__ uint32_t byte_of(uint32_t word, uint32_t index) { return (word >> (8 * index)) & 0xffu; }

// Scale and minimum of block `lane` from a kQ4K / kQ5K header.
__device__ __forceinline__ void k_header(const uint4& header, uint32_t lane, float& scale, float& minimum) {
  const uint32_t low = byte_of(lane < 4 ? header.y : header.z, lane & 3);
  const uint32_t high = header.w >> (4 * lane);
  const __half2 d = *reinterpret_cast<const __half2*>(&header.x);
  scale = __low2float(d) * static_cast<float>((low & 15u) | ((high & 3u) << 4));
  minimum = __high2float(d) * static_cast<float>((low >> 4) | ((high & 12u) << 2));
}

// Bits beyond the nibbles of four neighbouring weights, where they belong in their bytes: word `word` (0..7) of a kQ5K
// block, word `word` (0..3) of half a kQ6K block.
__device__ __forceinline__ uint32_t fifth_bits(uint32_t fifth, int word) {
  return ((fifth >> word) & 0x01010101u) << 4;
}
__device__ __forceinline__ uint32_t top_bits(uint32_t top, int word) {
  return ((top >> (2 * word)) & 0x03030303u) << 4;
}

// out[0..31]: columns 32 lane ... 32 lane + 31 of step `cell` (= row * steps + step).
__device__ inline void unpack_block(const PackedView& view, uint64_t cell, uint32_t lane, float (&out)[32]) {
  switch (view.packing) {
    case Packing::kQ8: {
      const auto* quants = static_cast<const int8_t*>(view.quants) + cell * 256;
      const float d = __half2float(static_cast<const __half*>(view.scales)[cell * 8 + lane]);
#pragma unroll
      for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(quants[(e / 16 * 8 + lane) * 16 + e % 16]);
      return;
    }
    case Packing::kQ4: {
      const auto* quants = static_cast<const uint8_t*>(view.quants) + cell * 128 + lane * 16;
      const float d = __half2float(static_cast<const __half*>(view.scales)[cell * 8 + lane]);
#pragma unroll
      for (int e = 0; e < 32; ++e) {
        const int nibble = e < 16 ? quants[e] & 15 : quants[e - 16] >> 4;
        out[e] = d * static_cast<float>(nibble - 8);
      }
      return;
    }
    case Packing::kQ4K:
    case Packing::kQ5K: {
      const auto* quants = static_cast<const uint8_t*>(view.quants) + cell * 128 + lane * 16;
      const uint32_t fifth =
          view.packing == Packing::kQ5K ? static_cast<const uint32_t*>(view.high)[cell * 8 + lane] : 0;
      float scale, minimum;
      k_header(static_cast<const uint4*>(view.scales)[cell], lane, scale, minimum);
#pragma unroll
      for (int e = 0; e < 32; ++e) {
        const int i = e / 16, w = e % 16 / 4, b = e % 4;
        const uint32_t nibble = e < 16 ? quants[e] & 15 : quants[e - 16] >> 4;
        const uint32_t q = nibble | (((fifth >> (8 * b + 4 * i + w)) & 1u) << 4);
        out[e] = scale * static_cast<float>(q) - minimum;
      }
      return;
    }
    case Packing::kQ6K: {
      const auto* quants = static_cast<const uint8_t*>(view.quants) + cell * 128 + lane * 16;
      const auto* high = static_cast<const uint32_t*>(view.high) + (cell * 8 + lane) * 2;
      const auto* scales = static_cast<const int8_t*>(view.scales) + cell * 16 + lane * 2;
      const float d = __half2float(static_cast<const __half*>(view.super)[cell]);
#pragma unroll
      for (int e = 0; e < 32; ++e) {
        const int i = e / 16, w = e % 16 / 4, b = e % 4;
        const uint32_t nibble = e < 16 ? quants[e] & 15 : quants[e - 16] >> 4;
        const uint32_t q = nibble | (((high[i] >> (8 * b + 2 * w)) & 3u) << 4);
        out[e] = d * static_cast<float>(scales[i]) * static_cast<float>(static_cast<int>(q) - 32);
      }
      return;
    }
    case Packing::kF16: {
      const auto* values = static_cast<const __half*>(view.quants) + cell * kStep + lane * 32;
#pragma unroll
      for (int e = 0; e < 32; ++e) out[e] = __half2float(values[e]);
      return;
    }
    case Packing::kBF16: {
      const auto* values = static_cast<const __nv_bfloat16*>(view.quants) + cell * kStep + lane * 32;
#pragma unroll
      for (int e = 0; e < 32; ++e) out[e] = __bfloat162float(values[e]);
      return;
    }
    case Packing::kF32: {
      const auto* values = static_cast<const float*>(view.quants) + cell * kStep + lane * 32;
#pragma unroll
      for (int e = 0; e < 32; ++e) out[e] = values[e];
      return;
    }
  }
}

// Eight neighbouring columns of a row or a vector.
struct Eight {
  float4 low, high;
};

// Columns c ... c + 7 (c a multiple of 8 below 256) of step `cell`.
template <PackingSet kPackings = kAllPackings>
__device__ __forceinline__ Eight unpack_eight(const PackedView& view, uint64_t cell, uint32_t c) {
  const auto read = [](auto type, const void* plane, uint64_t offset) {
    return *reinterpret_cast<const decltype(type)*>(static_cast<const char*>(plane) + offset);
  };
  if (is_packing<kPackings>(view.packing, Packing::kF32)) {
    const uint64_t at = (cell * kStep + c) * 4;
    return {read(float4{}, view.quants, at), read(float4{}, view.quants, at + 16)};
  }
  if (is_packing<kPackings>(view.packing, Packing::kF16) || is_packing<kPackings>(view.packing, Packing::kBF16)) {
    const auto pairs = read(uint4{}, view.quants, (cell * kStep + c) * 2);
    const bool brain = is_packing<kPackings>(view.packing, Packing::kBF16);
    const auto two = [brain](uint32_t bits) {
      if (brain) return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
      return __half22float2(*reinterpret_cast<const __half2*>(&bits));
    };
    const float2 v[4] = {two(pairs.x), two(pairs.y), two(pairs.z), two(pairs.w)};
    return {make_float4(v[0].x, v[0].y, v[1].x, v[1].y), make_float4(v[2].x, v[2].y, v[3].x, v[3].y)};
  }
  // (q - offset) * scale - minimum; a byte each.
  const uint32_t block = c / 32, half = c % 32 / 16, within = c % 16;
  const auto word = static_cast<int>(within / 4);
  const auto eight = [](uint2 bytes, float offset, float scale, float minimum) -> Eight {
    const auto one = [&](uint32_t q) { return (static_cast<float>(q) - offset) * scale - minimum; };
    const auto four = [&](uint32_t b) {
      return make_float4(one(byte_of(b, 0)), one(byte_of(b, 1)), one(byte_of(b, 2)), one(byte_of(b, 3)));
    };
    return {four(bytes.x), four(bytes.y)};
  };
  if (is_packing<kPackings>(view.packing, Packing::kQ8)) {
    const float scale = __half2float(read(__half{}, view.scales, (cell * 8 + block) * 2));
    const auto bytes = read(uint2{}, view.quants, cell * 256 + (half * 8 + block) * 16 + within);
    return eight(make_uint2(bytes.x ^ 0x80808080u, bytes.y ^ 0x80808080u), 128.0f, scale, 0.0f);
  }
  auto q = read(uint2{}, view.quants, cell * 128 + block * 16 + within);
  q = make_uint2(q.x >> (4 * half) & 0x0f0f0f0fu, q.y >> (4 * half) & 0x0f0f0f0fu);
  if (is_packing<kPackings>(view.packing, Packing::kQ4)) {
    return eight(q, 8.0f, __half2float(read(__half{}, view.scales, (cell * 8 + block) * 2)), 0.0f);
  }
  if (is_packing<kPackings>(view.packing, Packing::kQ6K)) {
    const auto tops = read(uint32_t{}, view.high, (cell * 8 + block) * 8 + half * 4);
    const auto scale = static_cast<float>(read(int8_t{}, view.scales, cell * 16 + block * 2 + half));
    const float all = __half2float(read(__half{}, view.super, cell * 2));
    return eight(make_uint2(q.x | top_bits(tops, word), q.y | top_bits(tops, word + 1)), 32.0f, all * scale, 0.0f);
  }
  float scale, minimum;
  k_header(read(uint4{}, view.scales, cell * 16), block, scale, minimum);
  if (is_packing<kPackings>(view.packing, Packing::kQ5K)) {
    const auto fifth = read(uint32_t{}, view.high, (cell * 8 + block) * 4);
    const int first = static_cast<int>(4 * half) + word;
    q = make_uint2(q.x | fifth_bits(fifth, first), q.y | fifth_bits(fifth, first + 1));
  }
  return eight(q, 0.0f, scale, minimum);
}

// One value: column `c` (0..255) of step `cell`.
__device__ inline float unpack_value(const PackedView& view, uint64_t cell, uint32_t c) {
  const uint32_t lane = c / 32, e = c % 32, i = e / 16, w = e % 16 / 4, b = e % 4;
  switch (view.packing) {
    case Packing::kQ8: {
      const float d = __half2float(static_cast<const __half*>(view.scales)[cell * 8 + lane]);
      return d * static_cast<float>(static_cast<const int8_t*>(view.quants)[cell * 256 + (i * 8 + lane) * 16 + e % 16]);
    }
    case Packing::kF16:
      return __half2float(static_cast<const __half*>(view.quants)[cell * kStep + c]);
    case Packing::kBF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(view.quants)[cell * kStep + c]);
    case Packing::kF32:
      return static_cast<const float*>(view.quants)[cell * kStep + c];
    default:
      break;
  }
  const uint8_t byte = static_cast<const uint8_t*>(view.quants)[cell * 128 + lane * 16 + e % 16];
  const uint32_t nibble = i == 0 ? byte & 15u : byte >> 4;
  if (view.packing == Packing::kQ4) {
    const float d = __half2float(static_cast<const __half*>(view.scales)[cell * 8 + lane]);
    return d * static_cast<float>(static_cast<int>(nibble) - 8);
  }
  if (view.packing == Packing::kQ6K) {
    const uint32_t high = static_cast<const uint32_t*>(view.high)[(cell * 8 + lane) * 2 + i];
    const int q = static_cast<int>(nibble | (((high >> (8 * b + 2 * w)) & 3u) << 4)) - 32;
    const float d = __half2float(static_cast<const __half*>(view.super)[cell]);
    return d * static_cast<float>(static_cast<const int8_t*>(view.scales)[cell * 16 + lane * 2 + i]) *
           static_cast<float>(q);
  }
  const uint32_t fifth = view.packing == Packing::kQ5K ? static_cast<const uint32_t*>(view.high)[cell * 8 + lane] : 0;
  float scale, minimum;
  k_header(static_cast<const uint4*>(view.scales)[cell], lane, scale, minimum);
  return scale * static_cast<float>(nibble | (((fifth >> (8 * b + 4 * i + w)) & 1u) << 4)) - minimum;
}

}  // namespace carat::cuda
