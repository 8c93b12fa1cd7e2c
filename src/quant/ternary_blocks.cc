// Dequantisation of the formats with one or two bits, or a base-3 digit, for an element and one scale for all of a
// block (docs/gemma4.md 8.2). Every value is a half or twice one, so nothing is rounded.

#include <cstdint>

#include "base/float16.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

// Digit n (0 to 4) of a byte, the most significant first. A byte holds its number as a fraction of 256, rounded up, so
// digits come out at the top one after another when it is multiplied by 3.
int ternary_digit(uint8_t byte, int n) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const auto rest = static_cast<uint8_t>(byte * kPowers[n]);
  return (rest * 3) >> 8;
}

}  // namespace

void dequantise_q1_0(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ1_0, 128>(blocks, out, count, [](const BlockQ1_0& block, float* y) {
    const float d = half_to_float(block.d);
    for (int e = 0; e < 128; ++e) y[e] = (block.quants[e / 8] >> (e % 8) & 1) != 0 ? d : -d;
  });
}

void dequantise_q2_0(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ2_0, 64>(blocks, out, count, [](const BlockQ2_0& block, float* y) {
    const float d = half_to_float(block.d);
    for (int e = 0; e < 64; ++e) y[e] = d * static_cast<float>((block.quants[e / 4] >> (2 * (e % 4)) & 3) - 1);
  });
}

void dequantise_tq1_0(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockTQ1_0, kSuperBlock>(blocks, out, count, [](const BlockTQ1_0& block, float* y) {
    const float d = half_to_float(block.d);
    // Digit n of `bytes` consecutive bytes is as many consecutive elements.
    const auto digits = [&](const uint8_t* packed, int bytes, int digits_of_each) {
      for (int n = 0; n < digits_of_each; ++n) {
        for (int i = 0; i < bytes; ++i) *y++ = d * static_cast<float>(ternary_digit(packed[i], n) - 1);
      }
    };
    digits(block.quants, 32, 5);
    digits(block.quants + 32, 16, 5);
    digits(block.high, 4, 4);
  });
}

void dequantise_tq2_0(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockTQ2_0, kSuperBlock>(blocks, out, count, [](const BlockTQ2_0& block, float* y) {
    const float d = half_to_float(block.d);
    for (int j = 0; j < kSuperBlock / 32; ++j) {
      const uint8_t* quants = block.quants + 32 * (j / 4);
      for (int l = 0; l < 32; ++l) y[32 * j + l] = d * static_cast<float>((quants[l] >> (2 * (j % 4)) & 3) - 1);
    }
  });
}

}  // namespace carat::quant
