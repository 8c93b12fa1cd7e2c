// Dequantisation of the K-quants (docs/gemma4.md 8.2): 256 elements whose sub-blocks of 16 or 32 have small integer
// scales. A half times a scale is exact in fp32, and so is its product with q except for Q6_K's 25 bits, so each value
// is the exact one rounded at most once.

#include <cstdint>

#include "base/float16.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
void dequantise_q2_k(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ2_K, kSuperBlock>(blocks, out, count, [](const BlockQ2_K& block, float* y) {
    const float d = half_to_float(block.d);
    const float dmin = half_to_float(block.dmin);
    for (int k = 0; k < kSuperBlock / 16; ++k) {  // sub-block k holds elements 16k to 16k + 15
      const uint8_t* quants = block.quants + 32 * (k / 8) + 16 * (k % 2);
      const int shift = 2 * ((k % 8) / 2);
      const float scale = d * static_cast<float>(block.scales[k] & 15);
      const float min = dmin * static_cast<float>(block.scales[k] >> 4);
      for (int l = 0; l < 16; ++l) y[16 * k + l] = scale * static_cast<float>((quants[l] >> shift) & 3) - min;
    }
  });
}

void dequantise_q3_k(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ3_K, kSuperBlock>(blocks, out, count, [](const BlockQ3_K& block, float* y) {
    const float d = half_to_float(block.d);
    for (int k = 0; k < kSuperBlock / 16; ++k) {
      const uint8_t* quants = block.quants + 32 * (k / 8) + 16 * (k % 2);
      const uint8_t* high = block.high + 16 * (k % 2);
      const int shift = 2 * ((k % 8) / 2);
      const float scale = d * static_cast<float>(unpack_q3_scale(block.scales, k));
      for (int l = 0; l < 16; ++l) {
        const int q = ((quants[l] >> shift) & 3) | (((high[l] >> (k / 2)) & 1) << 2);
        y[16 * k + l] = scale * static_cast<float>(q - 4);
      }
    }
  });
}

void dequantise_q4_k(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ4_K, kSuperBlock>(blocks, out, count, [](const BlockQ4_K& block, float* y) {
    const float d = half_to_float(block.d);
    const float dmin = half_to_float(block.dmin);
    for (int j = 0; j < kSuperBlock / 32; ++j) {  // sub-block j holds elements 32j to 32j + 31
      const uint8_t* quants = block.quants + 32 * (j / 2);
      const int shift = 4 * (j % 2);
      const ScaleAndMin packed = unpack_scale_and_min(block.scales, j);
      const float scale = d * static_cast<float>(packed.scale);
      const float min = dmin * static_cast<float>(packed.min);
      for (int l = 0; l < 32; ++l) y[32 * j + l] = scale * static_cast<float>((quants[l] >> shift) & 15) - min;
    }
  });
}

void dequantise_q5_k(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ5_K, kSuperBlock>(blocks, out, count, [](const BlockQ5_K& block, float* y) {
    const float d = half_to_float(block.d);
    const float dmin = half_to_float(block.dmin);
    for (int j = 0; j < kSuperBlock / 32; ++j) {
      const uint8_t* quants = block.quants + 32 * (j / 2);
      const int shift = 4 * (j % 2);
      const ScaleAndMin packed = unpack_scale_and_min(block.scales, j);
      const float scale = d * static_cast<float>(packed.scale);
      const float min = dmin * static_cast<float>(packed.min);
      for (int l = 0; l < 32; ++l) {
        const int q = ((quants[l] >> shift) & 15) | (((block.high[l] >> j) & 1) << 4);
        y[32 * j + l] = scale * static_cast<float>(q) - min;
      }
    }
  });
}

void dequantise_q6_k(const std::byte* blocks, float* out, size_t count) {
  decode_blocks<BlockQ6_K, kSuperBlock>(blocks, out, count, [](const BlockQ6_K& block, float* y) {
    const float d = half_to_float(block.d);
    for (int k = 0; k < kSuperBlock / 16; ++k) {
      const int half = k / 8;         // each 128 elements use 64 bytes of `low` and 32 of `high`
      const int group = (k % 8) / 2;  // 32 elements: groups 0 and 1 are the low nibbles, 2 and 3 the high ones
      const uint8_t* low = block.low + 64 * half + 32 * (group % 2) + 16 * (k % 2);
      const uint8_t* high = block.high + 32 * half + 16 * (k % 2);
      const int low_shift = 4 * (group / 2);
      const int high_shift = 2 * group;
      const float scale = d * static_cast<float>(block.scales[k]);
      for (int l = 0; l < 16; ++l) {
        const int q = ((low[l] >> low_shift) & 15) | (((high[l] >> high_shift) & 3) << 4);
        y[16 * k + l] = scale * static_cast<float>(q - 32);
      }
    }
  });
}

}  // namespace carat::quant
