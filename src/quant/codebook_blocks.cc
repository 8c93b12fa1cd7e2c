// Dequantisation of IQ4_XS and of the formats whose codes stand for groups of elements (docs/gemma4.md 8.2). A half, a
// scale of a few bits and a value of six or seven bits have at most 24 bits together, so no value is rounded.

#include <array>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

uint32_t word_at(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// Elements with one code of IQ2 (eight) or IQ3 (four). Bit i of `signs` belongs to element i.
template <int kCount, int kBits>
void signed_group(uint16_t levels, const uint8_t* values, uint32_t signs, float scale, float* y) {
  for (int i = 0; i < kCount; ++i) {
    const float value = scale * static_cast<float>(values[(levels >> (kBits * i)) & ((1 << kBits) - 1)]);
    y[i] = (signs >> i & 1) != 0 ? -value : value;
  }
}

void iq2_group(uint16_t levels, uint32_t signs, float scale, float* y) {
  signed_group<8, 2>(levels, kIq2Values, signs, scale, y);
}

void iq1_group(uint16_t levels, bool below, float scale, float* y) {
  const float delta = below ? -0.125f : 0.125f;
  for (int i = 0; i < 8; ++i) y[i] = scale * (static_cast<float>(((levels >> (2 * i)) & 3) - 1) + delta);
}

// (2 scale + 1) times d and a power of two.
float odd_scale(float d, unsigned scale) { return d * static_cast<float>(2 * scale + 1); }

}  // namespace

void dequantise_iq4_xs(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockIQ4_XS, kSuperBlock>(blocks, out, count, [](const BlockIQ4_XS& block, float* y) {
    const float d = half_to_float(block.d);
    for (int j = 0; j < kSuperBlock / 32; ++j) {
      const float scale = d * static_cast<float>(unpack_iq4_xs_scale(block, j));
      for (int l = 0; l < 16; ++l) {
        y[32 * j + l] = scale * static_cast<float>(kIq4NlValues[block.quants[16 * j + l] & 15]);
        y[32 * j + 16 + l] = scale * static_cast<float>(kIq4NlValues[block.quants[16 * j + l] >> 4]);
      }
    }
  });
}

void dequantise_iq3_s(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockIQ3_S, kSuperBlock>(blocks, out, count, [](const BlockIQ3_S& block, float* y) {
    const float d = half_to_float(block.d);
    for (int g = 0; g < kSuperBlock / 4; ++g) {  // eight groups a sub-block
      const int j = g / 8;
      const unsigned code = block.quants[g] | ((block.high[j] >> (g % 8)) & 1u) << 8;
      const unsigned scale = (block.scales[j / 2] >> (4 * (j % 2))) & 15u;
      const uint32_t signs = static_cast<uint32_t>(block.signs[g / 2] >> (4 * (g % 2)));
      signed_group<4, 3>(kIq3SCodebook[code], kIq3SValues, signs, odd_scale(d, scale), y + 4 * g);
    }
  });
}

void dequantise_iq3_xxs(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockIQ3_XXS, kSuperBlock>(blocks, out, count, [](const BlockIQ3_XXS& block, float* y) {
    const float d = half_to_float(block.d) * 0.25f;
    for (int g = 0; g < kSuperBlock / 4; ++g) {
      const uint32_t word = word_at(block.signs + 4 * (g / 8));
      const uint32_t signs = eight_signs((word >> (7 * (g % 8 / 2))) & 127) >> (4 * (g % 2));
      signed_group<4, 3>(kIq3XxsCodebook[block.quants[g]], kIq3XxsValues, signs, odd_scale(d, word >> 28), y + 4 * g);
    }
  });
}

void dequantise_iq2_s(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockIQ2_S, kSuperBlock>(blocks, out, count, [](const BlockIQ2_S& block, float* y) {
    const float d = half_to_float(block.d) * 0.125f;
    for (int g = 0; g < kSuperBlock / 8; ++g) {  // two groups a sub-block
      const int j = g / 4;
      const unsigned code = block.quants[g] | ((block.high[j] >> (2 * (g % 4))) & 3u) << 8;
      const unsigned scale = (block.scales[j] >> (4 * (g % 4 / 2))) & 15u;
      iq2_group(kIq2SCodebook[code], block.signs[g], odd_scale(d, scale), y + 8 * g);
    }
  });
}

void dequantise_iq2_xs(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockIQ2_XS, kSuperBlock>(blocks, out, count, [](const BlockIQ2_XS& block, float* y) {
    const float d = half_to_float(block.d) * 0.125f;
    for (int g = 0; g < kSuperBlock / 8; ++g) {
      const unsigned scale = (block.scales[g / 4] >> (4 * (g % 4 / 2))) & 15u;
      const unsigned quant = block.quants[g];
      iq2_group(kIq2XsCodebook[quant & 511], eight_signs(quant >> 9), odd_scale(d, scale), y + 8 * g);
    }
  });
}

void dequantise_iq2_xxs(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockIQ2_XXS, kSuperBlock>(blocks, out, count, [](const BlockIQ2_XXS& block, float* y) {
    const float d = half_to_float(block.d) * 0.125f;
    for (int g = 0; g < kSuperBlock / 8; ++g) {
      const uint8_t* sub_block = block.quants + 8 * (g / 4);
      const uint32_t word = word_at(sub_block + 4);
      const uint32_t signs = eight_signs((word >> (7 * (g % 4))) & 127);
      iq2_group(kIq2XxsCodebook[sub_block[g % 4]], signs, odd_scale(d, word >> 28), y + 8 * g);
    }
  });
}

void dequantise_iq1_s(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockIQ1_S, kSuperBlock>(blocks, out, count, [](const BlockIQ1_S& block, float* y) {
    const float d = half_to_float(block.d);
    for (int g = 0; g < kSuperBlock / 8; ++g) {
      const unsigned high = block.high[g / 4];
      const unsigned code = block.quants[g] | ((high >> (3 * (g % 4))) & 7u) << 8;
      iq1_group(kIq1Codebook[code], (high & 0x8000u) != 0, odd_scale(d, (high >> 12) & 7u), y + 8 * g);
    }
  });
}

void dequantise_iq1_m(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockIQ1_M, kSuperBlock>(blocks, out, count, [](const BlockIQ1_M& block, float* y) {
    std::array<uint16_t, 4> scales;
    std::memcpy(scales.data(), block.scales, sizeof block.scales);
    uint16_t bits = 0;
    for (int i = 0; i < 4; ++i) bits = static_cast<uint16_t>(bits | (scales[i] >> 12) << (4 * i));
    const float d = half_to_float(bits);
    for (int g = 0; g < kSuperBlock / 8; ++g) {
      const unsigned high = static_cast<unsigned>(block.high[g / 2] >> (4 * (g % 2))) & 15u;
      const unsigned scale = (scales[g / 8] >> (3 * (g % 8 / 2))) & 7u;
      iq1_group(kIq1Codebook[block.quants[g] | (high & 7u) << 8], (high & 8u) != 0, odd_scale(d, scale), y + 8 * g);
    }
  });
}

}  // namespace carat::quant
