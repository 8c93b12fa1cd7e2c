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

}  // namespace carat::quant
