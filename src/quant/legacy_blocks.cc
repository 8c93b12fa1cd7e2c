// Dequantisation of the formats with one scale per 32 elements (docs/gemma4.md 8.2). Every product of a half and a
// small integer is exact in fp32, so each value is the exact one rounded at most once (at the addition of m).

#include <bit>
#include <cstdint>

#include "base/float16.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

uint32_t high_bits(const uint8_t (&bytes)[4]) {
  return bytes[0] | (uint32_t{bytes[1]} << 8) | (uint32_t{bytes[2]} << 16) | (uint32_t{bytes[3]} << 24);
}

// 2^(exponent - 128); the two smallest are subnormal floats.
float mxfp4_scale(uint8_t exponent) {
  if (exponent < 2) return std::bit_cast<float>(uint32_t{0x00200000} << exponent);
  return std::bit_cast<float>(static_cast<uint32_t>(exponent - 1) << 23);
}

}  // namespace

void dequantise_q8_0(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ8_0, kBlock>(blocks, out, count, [](const BlockQ8_0& block, float* y) {
    const float d = half_to_float(block.d);
    for (int e = 0; e < kBlock; ++e) y[e] = d * static_cast<float>(block.quants[e]);
  });
}

void dequantise_q4_0(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ4_0, kBlock>(blocks, out, count, [](const BlockQ4_0& block, float* y) {
    const float d = half_to_float(block.d);
    for (int e = 0; e < kBlock / 2; ++e) {
      y[e] = d * static_cast<float>((block.quants[e] & 15) - 8);
      y[e + kBlock / 2] = d * static_cast<float>((block.quants[e] >> 4) - 8);
    }
  });
}

void dequantise_q4_1(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ4_1, kBlock>(blocks, out, count, [](const BlockQ4_1& block, float* y) {
    const float d = half_to_float(block.d);
    const float m = half_to_float(block.m);
    for (int e = 0; e < kBlock / 2; ++e) {
      y[e] = d * static_cast<float>(block.quants[e] & 15) + m;
      y[e + kBlock / 2] = d * static_cast<float>(block.quants[e] >> 4) + m;
    }
  });
}

void dequantise_q5_0(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ5_0, kBlock>(blocks, out, count, [](const BlockQ5_0& block, float* y) {
    const float d = half_to_float(block.d);
    const uint32_t high = high_bits(block.high);
    for (int e = 0; e < kBlock / 2; ++e) {
      const int first = (block.quants[e] & 15) | static_cast<int>(((high >> e) & 1) << 4);
      const int second = (block.quants[e] >> 4) | static_cast<int>(((high >> (e + kBlock / 2)) & 1) << 4);
      y[e] = d * static_cast<float>(first - 16);
      y[e + kBlock / 2] = d * static_cast<float>(second - 16);
    }
  });
}

void dequantise_q5_1(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ5_1, kBlock>(blocks, out, count, [](const BlockQ5_1& block, float* y) {
    const float d = half_to_float(block.d);
    const float m = half_to_float(block.m);
    const uint32_t high = high_bits(block.high);
    for (int e = 0; e < kBlock / 2; ++e) {
      const int first = (block.quants[e] & 15) | static_cast<int>(((high >> e) & 1) << 4);
      const int second = (block.quants[e] >> 4) | static_cast<int>(((high >> (e + kBlock / 2)) & 1) << 4);
      y[e] = d * static_cast<float>(first) + m;
      y[e + kBlock / 2] = d * static_cast<float>(second) + m;
    }
  });
}

void dequantise_iq4_nl(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockIQ4_NL, kBlock>(blocks, out, count, [](const BlockIQ4_NL& block, float* y) {
    const float d = half_to_float(block.d);
    for (int e = 0; e < kBlock / 2; ++e) {
      y[e] = d * static_cast<float>(kIq4NlValues[block.quants[e] & 15]);
      y[e + kBlock / 2] = d * static_cast<float>(kIq4NlValues[block.quants[e] >> 4]);
    }
  });
}

void dequantise_mxfp4(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockMXFP4, kBlock>(blocks, out, count, [](const BlockMXFP4& block, float* y) {
    const float d = mxfp4_scale(block.exponent);
    for (int e = 0; e < kBlock / 2; ++e) {
      y[e] = d * static_cast<float>(kMxfp4Values[block.quants[e] & 15]);
      y[e + kBlock / 2] = d * static_cast<float>(kMxfp4Values[block.quants[e] >> 4]);
    }
  });
}

void dequantise_nvfp4(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockNVFP4, 64>(blocks, out, count, [](const BlockNVFP4& block, float* y) {
    for (int k = 0; k < 4; ++k) {
      const float d = nvfp4_scale(block.scales[k]);
      for (int e = 0; e < 8; ++e) {
        y[16 * k + e] = d * static_cast<float>(kMxfp4Values[block.quants[8 * k + e] & 15]);
        y[16 * k + 8 + e] = d * static_cast<float>(kMxfp4Values[block.quants[8 * k + e] >> 4]);
      }
    }
  });
}

}  // namespace carat::quant
