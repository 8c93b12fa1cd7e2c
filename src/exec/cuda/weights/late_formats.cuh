// Values of the formats that have no packing of their own and came with codebooks, ternary digits and NVFP4, element by
// element from the file's bytes (docs/gemma4.md 8.2): for repack.cu, once per load.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/format.h"

namespace carat::cuda {

struct DeviceCodebooks {
  uint16_t iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq3_xxs[256], iq3_s[512], iq1[2048];
};

constexpr DeviceCodebooks make_codebooks() {
  DeviceCodebooks all{};
  for (size_t i = 0; i < 256; ++i) all.iq2_xxs[i] = quant::kIq2XxsCodebook[i];
  for (size_t i = 0; i < 512; ++i) all.iq2_xs[i] = quant::kIq2XsCodebook[i];
  for (size_t i = 0; i < 1024; ++i) all.iq2_s[i] = quant::kIq2SCodebook[i];
  for (size_t i = 0; i < 256; ++i) all.iq3_xxs[i] = quant::kIq3XxsCodebook[i];
  for (size_t i = 0; i < 512; ++i) all.iq3_s[i] = quant::kIq3SCodebook[i];
  for (size_t i = 0; i < 2048; ++i) all.iq1[i] = quant::kIq1Codebook[i];
  return all;
}

static __device__ const DeviceCodebooks kDeviceCodebooks = make_codebooks();

namespace late {

using quant::Format;

__device__ __forceinline__ uint32_t u16(const uint8_t* p) { return p[0] | (static_cast<uint32_t>(p[1]) << 8); }
__device__ __forceinline__ uint32_t u32(const uint8_t* p) { return u16(p) | (u16(p + 2) << 16); }
__device__ __forceinline__ float half_at(const uint8_t* p) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(u16(p))));
}
__device__ __forceinline__ float odd(uint32_t scale) { return static_cast<float>(2 * scale + 1); }
// Bit i of eight signs.
__device__ __forceinline__ float with_sign(float value, uint32_t signs, uint32_t i) {
  return ((signs >> i) & 1u) != 0 ? -value : value;
}
__device__ __forceinline__ float iq2_value(uint32_t levels, uint32_t i) {
  const uint32_t level = (levels >> (2 * i)) & 3u;
  return level == 0 ? 8.0f : level == 1 ? 25.0f : 43.0f;
}
__device__ __forceinline__ float iq1_value(uint32_t levels, uint32_t i, bool below) {
  return static_cast<float>(static_cast<int>((levels >> (2 * i)) & 3u) - 1) + (below ? -0.125f : 0.125f);
}

// Element e of a super-block.
__device__ float iq2(Format format, const uint8_t* block, uint32_t e) {
  const float d = half_at(block) * 0.125f;
  const uint32_t g = e / 8, i = e % 8;
  if (format == Format::kIQ2_XXS) {
    const uint8_t* sub = block + 2 + 8 * (e / 32);
    const uint32_t word = u32(sub + 4);
    const uint32_t signs = quant::eight_signs((word >> (7 * (g % 4))) & 127u);
    return d * odd(word >> 28) * with_sign(iq2_value(kDeviceCodebooks.iq2_xxs[sub[g % 4]], i), signs, i);
  }
  const uint32_t scale_at = format == Format::kIQ2_XS ? 66u : 74u;
  const uint32_t scale = (block[scale_at + e / 32] >> (4 * (e % 32 / 16))) & 15u;
  if (format == Format::kIQ2_XS) {
    const uint32_t q = u16(block + 2 + 2 * g);
    const uint32_t signs = quant::eight_signs(q >> 9);
    return d * odd(scale) * with_sign(iq2_value(kDeviceCodebooks.iq2_xs[q & 511u], i), signs, i);
  }
  const uint32_t code = block[2 + g] | (((block[66 + e / 32] >> (2 * (g % 4))) & 3u) << 8);
  return d * odd(scale) * with_sign(iq2_value(kDeviceCodebooks.iq2_s[code], i), block[34 + g], i);
}

__device__ float iq3(Format format, const uint8_t* block, uint32_t e) {
  const uint32_t g = e / 4, i = e % 4;
  if (format == Format::kIQ3_XXS) {
    const uint32_t word = u32(block + 66 + 4 * (e / 32));
    const uint32_t signs = quant::eight_signs((word >> (7 * (e / 8 % 4))) & 127u);
    const uint32_t level = (kDeviceCodebooks.iq3_xxs[block[2 + g]] >> (3 * i)) & 7u;
    const float value = level == 7 ? 62.0f : static_cast<float>(8 * level + 4);
    return half_at(block) * 0.25f * odd(word >> 28) * with_sign(value, signs, e % 8);
  }
  const uint32_t code = block[2 + g] | (((block[66 + e / 32] >> (g % 8)) & 1u) << 8);
  const uint32_t scale = (block[106 + e / 64] >> (4 * (e / 32 % 2))) & 15u;
  const float value = odd((kDeviceCodebooks.iq3_s[code] >> (3 * i)) & 7u);
  return half_at(block) * odd(scale) * with_sign(value, block[74 + e / 8], e % 8);
}

__device__ float iq1(Format format, const uint8_t* block, uint32_t e) {
  const uint32_t g = e / 8, i = e % 8;
  if (format == Format::kIQ1_S) {
    const uint32_t high = u16(block + 34 + 2 * (e / 32));
    const uint32_t code = block[2 + g] | (((high >> (3 * (g % 4))) & 7u) << 8);
    return half_at(block) * odd((high >> 12) & 7u) * iq1_value(kDeviceCodebooks.iq1[code], i, (high & 0x8000u) != 0);
  }
  uint32_t d = 0;
  for (uint32_t k = 0; k < 4; ++k) d |= static_cast<uint32_t>(block[49 + 2 * k] >> 4) << (4 * k);
  const uint32_t high = (block[32 + g / 2] >> (4 * (g % 2))) & 15u;
  const uint32_t scale = (u16(block + 48 + 2 * (e / 64)) >> (3 * (e / 16 % 4))) & 7u;
  const float base = __half2float(__ushort_as_half(static_cast<unsigned short>(d)));
  const uint32_t levels = kDeviceCodebooks.iq1[block[g] | ((high & 7u) << 8)];
  return base * odd(scale) * iq1_value(levels, i, (high & 8u) != 0);
}

__device__ float ternary(Format format, const uint8_t* row, uint32_t e) {
  switch (format) {
    case Format::kQ1_0: {
      const uint8_t* block = row + e / 128 * 18;
      return ((block[2 + e % 128 / 8] >> (e % 8)) & 1u) != 0 ? half_at(block) : -half_at(block);
    }
    case Format::kQ2_0: {
      const uint8_t* block = row + e / 64 * 18;
      return half_at(block) * static_cast<float>(static_cast<int>((block[2 + e % 64 / 4] >> (2 * (e % 4))) & 3u) - 1);
    }
    case Format::kTQ2_0: {
      const uint8_t* block = row + e / 256 * 66;
      const uint32_t i = e % 256;
      const int q = static_cast<int>((block[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3u);
      return half_at(block + 64) * static_cast<float>(q - 1);
    }
    default: {  // TQ1_0: digits come out at the top of a byte's fraction when it is multiplied by 3
      const uint8_t* block = row + e / 256 * 54;
      const uint32_t i = e % 256;
      const uint32_t byte = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
      const uint32_t digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
      uint32_t fraction = block[byte];
      for (uint32_t n = 0; n < digit; ++n) fraction = fraction * 3u & 255u;
      return half_at(block + 52) * static_cast<float>(static_cast<int>(fraction * 3u >> 8) - 1);
    }
  }
}

}  // namespace late

// Value of element e of a row; `fp4` are the doubled FP4 values, `iq4` those of IQ4_NL.
__device__ float late_format_value(quant::Format format, const uint8_t* row, uint32_t e, const int8_t* fp4,
                                   const int8_t* iq4) {
  using quant::Format;
  switch (format) {
    case Format::kNVFP4: {
      const uint8_t* block = row + e / 64 * 36;
      const uint32_t i = e % 64;
      const uint8_t byte = block[4 + i / 16 * 8 + i % 8];
      return quant::nvfp4_scale(block[i / 16]) * static_cast<float>(fp4[i % 16 < 8 ? byte & 15u : byte >> 4]);
    }
    case Format::kIQ4_XS: {
      const uint8_t* block = row + e / 256 * 136;
      const uint32_t i = e % 256, j = i / 32;
      const uint32_t low = (block[4 + j / 2] >> (4 * (j % 2))) & 15u, high = (late::u16(block + 2) >> (2 * j)) & 3u;
      const uint8_t byte = block[8 + 16 * j + i % 16];
      const float scale = late::half_at(block) * static_cast<float>(static_cast<int>(low | (high << 4)) - 32);
      return scale * static_cast<float>(iq4[i % 32 < 16 ? byte & 15u : byte >> 4]);
    }
    case Format::kIQ3_S:
      return late::iq3(format, row + e / 256 * 110, e % 256);
    case Format::kIQ3_XXS:
      return late::iq3(format, row + e / 256 * 98, e % 256);
    case Format::kIQ2_S:
      return late::iq2(format, row + e / 256 * 82, e % 256);
    case Format::kIQ2_XS:
      return late::iq2(format, row + e / 256 * 74, e % 256);
    case Format::kIQ2_XXS:
      return late::iq2(format, row + e / 256 * 66, e % 256);
    case Format::kIQ1_S:
      return late::iq1(format, row + e / 256 * 50, e % 256);
    case Format::kIQ1_M:
      return late::iq1(format, row + e / 256 * 56, e % 256);
    default:
      return late::ternary(format, row, e);
  }
}

}  // namespace carat::cuda
