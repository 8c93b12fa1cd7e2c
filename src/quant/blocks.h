#pragma once

// The bytes of one block of each quantised weight format (docs/gemma4.md 8.2), for the dequantisers here and for the
// CPU and CUDA kernels alike. Needs nothing but the standard library and compiles as device code.
//
// Blocks are stored back to back. A row of a GGUF tensor starts on the file's alignment, so on that path a struct with
// 16-bit members may be read in place; anything that takes an arbitrary pointer goes through load_block().

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __CUDACC__
#define CARAT_HOST_DEVICE __host__ __device__
#else
#define CARAT_HOST_DEVICE
#endif

namespace carat::quant {

inline constexpr int kBlock = 32;        // elements of a block with one scale
inline constexpr int kSuperBlock = 256;  // elements of a K-quant block: sub-blocks of 16 or 32 under a shared scale

using HalfBits = uint16_t;  // an IEEE half; see base/float16.h

// --- 32 elements, one scale. Element e < 16 is the low nibble of quants[e], element e + 16 the high nibble. ---

struct BlockQ8_0 {  // d * quants[e]
  HalfBits d;
  int8_t quants[kBlock];
};

struct BlockQ4_0 {  // d * (nibble - 8)
  HalfBits d;
  uint8_t quants[kBlock / 2];
};

struct BlockQ4_1 {  // d * nibble + m
  HalfBits d;
  HalfBits m;
  uint8_t quants[kBlock / 2];
};

struct BlockQ5_0 {  // d * ((nibble | bit << 4) - 16); bit e of the little-endian 32-bit `high`
  HalfBits d;
  uint8_t high[4];
  uint8_t quants[kBlock / 2];
};

struct BlockQ5_1 {  // d * (nibble | bit << 4) + m
  HalfBits d;
  HalfBits m;
  uint8_t high[4];
  uint8_t quants[kBlock / 2];
};

struct BlockIQ4_NL {  // d * kIq4NlValues[nibble]
  HalfBits d;
  uint8_t quants[kBlock / 2];
};

struct BlockMXFP4 {  // 2^(exponent - 128) * kMxfp4Values[nibble]
  uint8_t exponent;
  uint8_t quants[kBlock / 2];
};

struct BlockNVFP4 {  // 64 elements, four sub-blocks of 16: ue4m3(scale) * FP4 value; low nibbles first in each
  uint8_t scales[4];
  uint8_t quants[32];
};

struct BlockQ1_0 {  // 128 elements: d where the bit is set, else -d
  HalfBits d;
  uint8_t quants[16];
};

struct BlockQ2_0 {  // 64 elements: d * (q - 1); element e in bits 2 (e % 4) of quants[e / 4]
  HalfBits d;
  uint8_t quants[16];
};

// --- 256 elements: sub-block scales of a few bits, scaled by halves. ---

struct BlockQ2_K {  // 16 sub-blocks of 16: d * (scale & 15) * q - dmin * (scale >> 4)
  uint8_t scales[kSuperBlock / 16];
  uint8_t quants[kSuperBlock / 4];
  HalfBits d;
  HalfBits dmin;
};

struct BlockQ3_K {  // 16 sub-blocks of 16: d * scale * q, 6-bit scales, q in -4..3
  uint8_t high[kSuperBlock / 8];
  uint8_t quants[kSuperBlock / 4];
  uint8_t scales[12];
  HalfBits d;
};

struct BlockQ4_K {  // 8 sub-blocks of 32: d * scale * q - dmin * min, 6-bit scales and mins
  HalfBits d;
  HalfBits dmin;
  uint8_t scales[12];
  uint8_t quants[kSuperBlock / 2];
};

struct BlockQ5_K {  // as Q4_K with a fifth bit: bit j of high[e % 32] belongs to sub-block j
  HalfBits d;
  HalfBits dmin;
  uint8_t scales[12];
  uint8_t high[kSuperBlock / 8];
  uint8_t quants[kSuperBlock / 2];
};

struct BlockQ6_K {  // 16 sub-blocks of 16: d * scale * q, q in -32..31
  uint8_t low[kSuperBlock / 2];
  uint8_t high[kSuperBlock / 4];
  int8_t scales[kSuperBlock / 16];
  HalfBits d;
};

struct BlockIQ4_XS {  // 8 sub-blocks of 32: d * scale * kIq4NlValues[nibble], 6-bit scales; nibbles as in IQ4_NL
  HalfBits d;
  uint16_t scales_high;
  uint8_t scales_low[kSuperBlock / 64];
  uint8_t quants[kSuperBlock / 2];
};

// A codebook's entry stands for the magnitudes of eight elements (IQ3: four): see codebooks.h.

struct BlockIQ3_S {  // 8 sub-blocks of 32: d * (2 scale + 1) * value; codes of 9 bits, a sign for each element
  HalfBits d;
  uint8_t quants[kSuperBlock / 4];
  uint8_t high[kSuperBlock / 32];
  uint8_t signs[kSuperBlock / 8];
  uint8_t scales[kSuperBlock / 64];
};

struct BlockIQ3_XXS {  // 8 sub-blocks of 32: d * (2 scale + 1) / 4 * value; codes of 8 bits
  HalfBits d;
  uint8_t quants[kSuperBlock / 4];
  uint8_t signs[kSuperBlock / 8];  // of each sub-block 32 bits: four times seven signs, then the scale
};

struct BlockIQ2_S {  // 16 sub-blocks of 16: d * (2 scale + 1) / 8 * value; codes of 10 bits, a sign for each element
  HalfBits d;
  uint8_t quants[kSuperBlock / 8];
  uint8_t signs[kSuperBlock / 8];
  uint8_t high[kSuperBlock / 32];
  uint8_t scales[kSuperBlock / 32];
};

struct BlockIQ2_XS {  // 16 sub-blocks of 16: d * (2 scale + 1) / 8 * value; of 16 bits nine are the code, seven the
                      // signs
  HalfBits d;
  uint16_t quants[kSuperBlock / 8];
  uint8_t scales[kSuperBlock / 32];
};

struct BlockIQ2_XXS {  // 8 sub-blocks of 32: d * (2 scale + 1) / 8 * value
  HalfBits d;
  uint8_t quants[kSuperBlock / 4];  // of each sub-block four codes of 8 bits, four times seven signs, the scale
};

struct BlockIQ1_S {  // 8 sub-blocks of 32: d * (2 scale + 1) * (level - 1 +- 1/8); codes of 11 bits
  HalfBits d;
  uint8_t quants[kSuperBlock / 8];
  uint16_t high[kSuperBlock / 32];  // four times three bits of the codes, the scale, the sign of 1/8
};

struct BlockIQ1_M {  // 16 sub-blocks of 16, as IQ1_S; the sign of 1/8 is of each code
  uint8_t quants[kSuperBlock / 8];
  uint8_t high[kSuperBlock / 16];    // of each code three bits, then the sign
  uint8_t scales[kSuperBlock / 32];  // four 16-bit words: four scales of three bits, then a quarter of d
};

struct BlockTQ1_0 {  // d * (digit - 1): five base-3 digits a byte, four in the last ones
  uint8_t quants[48];
  uint8_t high[4];
  HalfBits d;
};

struct BlockTQ2_0 {  // d * (q - 1), q laid out as in Q2_K
  uint8_t quants[kSuperBlock / 4];
  HalfBits d;
};

static_assert(sizeof(BlockQ8_0) == 34 && offsetof(BlockQ8_0, quants) == 2);
static_assert(sizeof(BlockQ4_0) == 18 && offsetof(BlockQ4_0, quants) == 2);
static_assert(sizeof(BlockQ4_1) == 20 && offsetof(BlockQ4_1, m) == 2 && offsetof(BlockQ4_1, quants) == 4);
static_assert(sizeof(BlockQ5_0) == 22 && offsetof(BlockQ5_0, high) == 2 && offsetof(BlockQ5_0, quants) == 6);
static_assert(sizeof(BlockQ5_1) == 24 && offsetof(BlockQ5_1, high) == 4 && offsetof(BlockQ5_1, quants) == 8);
static_assert(sizeof(BlockIQ4_NL) == 18 && offsetof(BlockIQ4_NL, quants) == 2);
static_assert(sizeof(BlockMXFP4) == 17 && offsetof(BlockMXFP4, quants) == 1);
static_assert(sizeof(BlockQ2_K) == 84 && offsetof(BlockQ2_K, quants) == 16 && offsetof(BlockQ2_K, d) == 80);
static_assert(sizeof(BlockQ3_K) == 110 && offsetof(BlockQ3_K, scales) == 96 && offsetof(BlockQ3_K, d) == 108);
static_assert(sizeof(BlockQ4_K) == 144 && offsetof(BlockQ4_K, scales) == 4 && offsetof(BlockQ4_K, quants) == 16);
static_assert(sizeof(BlockQ5_K) == 176 && offsetof(BlockQ5_K, high) == 16 && offsetof(BlockQ5_K, quants) == 48);
static_assert(sizeof(BlockQ6_K) == 210 && offsetof(BlockQ6_K, high) == 128 && offsetof(BlockQ6_K, scales) == 192);
static_assert(sizeof(BlockNVFP4) == 36 && offsetof(BlockNVFP4, quants) == 4);
static_assert(sizeof(BlockQ1_0) == 18 && sizeof(BlockQ2_0) == 18 && offsetof(BlockQ2_0, quants) == 2);
static_assert(sizeof(BlockIQ4_XS) == 136 && offsetof(BlockIQ4_XS, quants) == 8);
static_assert(sizeof(BlockIQ3_S) == 110 && offsetof(BlockIQ3_S, signs) == 74 && offsetof(BlockIQ3_S, scales) == 106);
static_assert(sizeof(BlockIQ3_XXS) == 98 && offsetof(BlockIQ3_XXS, signs) == 66);
static_assert(sizeof(BlockIQ2_S) == 82 && offsetof(BlockIQ2_S, high) == 66 && offsetof(BlockIQ2_S, scales) == 74);
static_assert(sizeof(BlockIQ2_XS) == 74 && offsetof(BlockIQ2_XS, scales) == 66);
static_assert(sizeof(BlockIQ2_XXS) == 66 && offsetof(BlockIQ2_XXS, quants) == 2);
static_assert(sizeof(BlockIQ1_S) == 50 && offsetof(BlockIQ1_S, high) == 34);
static_assert(sizeof(BlockIQ1_M) == 56 && offsetof(BlockIQ1_M, scales) == 48);
static_assert(sizeof(BlockTQ1_0) == 54 && offsetof(BlockTQ1_0, d) == 52);
static_assert(sizeof(BlockTQ2_0) == 66 && offsetof(BlockTQ2_0, d) == 64);

// Device code cannot index these host arrays at run time: initialise a __constant__ copy or a register table from them.
inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Twice the FP4 (E2M1) values, so that they are integers; the block's 2^(exponent - 128) makes up for it.
inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// A copy of the block at any address.
template <typename Block>
Block load_block(const std::byte* bytes) {
  static_assert(std::is_trivially_copyable_v<Block>);
  Block block;
  std::memcpy(&block, bytes, sizeof(Block));
  return block;
}

template <typename Block>
void store_block(std::byte* bytes, const Block& block) {
  static_assert(std::is_trivially_copyable_v<Block>);
  std::memcpy(bytes, &block, sizeof(Block));
}

struct ScaleAndMin {
  uint8_t scale;
  uint8_t min;
};

// The 6-bit scale and min of sub-block j (0 to 7) of Q4_K and Q5_K.
CARAT_HOST_DEVICE constexpr ScaleAndMin unpack_scale_and_min(const uint8_t* scales, int j) {
  if (j < 4) return {static_cast<uint8_t>(scales[j] & 63), static_cast<uint8_t>(scales[j + 4] & 63)};
  return {static_cast<uint8_t>((scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4)),
          static_cast<uint8_t>((scales[j + 4] >> 4) | ((scales[j] >> 6) << 4))};
}

// The 6-bit scale of sub-block k (0 to 15) of Q3_K, in -32..31.
CARAT_HOST_DEVICE constexpr int unpack_q3_scale(const uint8_t* scales, int k) {
  const int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
  const int high = (scales[8 + k % 4] >> (2 * (k / 4))) & 3;
  return (low | (high << 4)) - 32;
}

// The 6-bit scale of sub-block j (0 to 7) of IQ4_XS, in -32..31.
CARAT_HOST_DEVICE constexpr int unpack_iq4_xs_scale(const BlockIQ4_XS& block, int j) {
  const int low = (block.scales_low[j / 2] >> (4 * (j % 2))) & 15;
  const int high = (block.scales_high >> (2 * j)) & 3;
  return (low | (high << 4)) - 32;
}

// Seven signs stand for eight: their number is even.
CARAT_HOST_DEVICE constexpr uint32_t eight_signs(uint32_t seven) {
  const uint32_t folded = seven ^ (seven >> 4);
  const uint32_t pairs = folded ^ (folded >> 2);
  return seven | (((pairs ^ (pairs >> 1)) & 1) << 7);
}

// A scale of NVFP4 has four bits of exponent and three of mantissa, no sign, and 127 (which would be NaN) stands for 0.
// Half of it, because the FP4 values are doubled: mantissa * 2^exponent / 2^11 exactly.
CARAT_HOST_DEVICE constexpr float nvfp4_scale(uint8_t scale) {
  if (scale == 0x7f) return 0.0f;
  const int exponent = (scale >> 3) & 15;
  const int mantissa = exponent == 0 ? scale & 7 : (scale & 7) + 8;
  return static_cast<float>(mantissa << (exponent == 0 ? 1 : exponent)) * 0x1p-11f;
}

}  // namespace carat::quant
