#include "quant/element_values.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "quant/codebooks.h"
#include "support/random.h"

namespace carat::test {
namespace {

using quant::Format;

// Reads one block by byte offset, as the table in the specification does.
class Block {
 public:
  explicit Block(const std::byte* bytes) : bytes_(bytes) {}

  unsigned byte(int offset) const { return std::to_integer<unsigned>(bytes_[offset]); }
  int signed_byte(int offset) const { return byte(offset) < 128 ? int(byte(offset)) : int(byte(offset)) - 256; }
  double half(int offset) const { return half_value(byte(offset) | (byte(offset + 1) << 8)); }
  unsigned bits(int offset, int shift, unsigned mask) const { return (byte(offset) >> shift) & mask; }

  // Element e of 32 nibbles that start at `offset`: low halves of 16 bytes first, then the high ones.
  unsigned nibble(int offset, int e) const { return e < 16 ? bits(offset + e, 0, 15) : bits(offset + e - 16, 4, 15); }
  // Bit e of a little-endian 32-bit number.
  unsigned bit32(int offset, int e) const { return bits(offset + e / 8, e % 8, 1); }

 private:
  const std::byte* bytes_;
};

double float_format(Format format, const Block& b) {
  const uint32_t low = b.byte(0) | (b.byte(1) << 8);
  if (format == Format::kF16) return b.half(0);
  if (format == Format::kBF16) return std::bit_cast<float>(low << 16);
  return std::bit_cast<float>(low | (b.byte(2) << 16) | (b.byte(3) << 24));
}

constexpr int kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int kFloat4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

double small_block(Format format, const Block& b, int e) {
  switch (format) {
    case Format::kQ8_0:
      return b.half(0) * b.signed_byte(2 + e);
    case Format::kQ4_0:
      return b.half(0) * (int(b.nibble(2, e)) - 8);
    case Format::kQ4_1:
      return b.half(0) * b.nibble(4, e) + b.half(2);
    case Format::kQ5_0:
      return b.half(0) * (int(b.nibble(6, e) | (b.bit32(2, e) << 4)) - 16);
    case Format::kQ5_1:
      return b.half(0) * (b.nibble(8, e) | (b.bit32(4, e) << 4)) + b.half(2);
    case Format::kIQ4_NL:
      return b.half(0) * kNonLinear[b.nibble(2, e)];
    case Format::kMXFP4:
      return std::ldexp(double{1}, int(b.byte(0)) - 128) * kFloat4[b.nibble(1, e)];
    default:
      throw std::logic_error("not a format of 32 elements");
  }
}

double nvfp4(const Block& b, int e) {
  const unsigned scale = b.byte(e / 16), exponent = (scale >> 3) & 15, mantissa = scale & 7;
  const double d = scale == 127    ? 0.0
                   : exponent == 0 ? std::ldexp(mantissa, -9)
                                   : std::ldexp(1.0 + mantissa / 8.0, int(exponent) - 7);
  const unsigned n = b.bits(4 + e / 16 * 8 + e % 8, e % 16 < 8 ? 0 : 4, 15);
  return d / 2.0 * kFloat4[n];
}

// Whether the sign of element i of eight is set that are stored as seven bits and an even parity.
bool seventh_parity(unsigned seven, int i) { return i < 7 ? (seven >> i & 1) != 0 : std::popcount(seven) % 2 != 0; }

double iq4_xs(const Block& b, int e) {
  const int j = e / 32;
  const unsigned scale = b.bits(4 + j / 2, 4 * (j % 2), 15) | b.bits(2 + j / 4, 2 * (j % 4), 3) << 4;
  return b.half(0) * (int(scale) - 32) * kNonLinear[b.nibble(8 + 16 * j, e % 32)];
}

double iq3_s(const Block& b, int e) {
  const unsigned code = b.byte(2 + e / 4) | b.bits(66 + e / 32, e / 4 % 8, 1) << 8;
  const int value = 2 * (quant::kIq3SCodebook[code] >> (3 * (e % 4)) & 7) + 1;
  const unsigned scale = 2 * b.bits(106 + e / 64, e % 64 < 32 ? 0 : 4, 15) + 1;
  return b.half(0) * scale * (b.bits(74 + e / 8, e % 8, 1) != 0 ? -value : value);
}

double iq3_xxs(const Block& b, int e) {
  static constexpr int kValues[8] = {4, 12, 20, 28, 36, 44, 52, 62};
  const int at = 66 + 4 * (e / 32), group = e / 8 % 4;
  const int value = kValues[quant::kIq3XxsCodebook[b.byte(2 + e / 4)] >> (3 * (e % 4)) & 7];
  unsigned seven = 0;
  for (int i = 0; i < 7; ++i) seven |= b.bit32(at, 7 * group + i) << i;
  return b.half(0) * (2 * b.bits(at + 3, 4, 15) + 1) / 4.0 * (seventh_parity(seven, e % 8) ? -value : value);
}

int iq2_value(uint16_t levels, int i) {
  static constexpr int kValues[3] = {8, 25, 43};
  return kValues[levels >> (2 * i) & 3];
}

double iq2_s(const Block& b, int e) {
  const unsigned code = b.byte(2 + e / 8) | b.bits(66 + e / 32, 2 * (e / 8 % 4), 3) << 8;
  const int value = iq2_value(quant::kIq2SCodebook[code], e % 8);
  const unsigned scale = 2 * b.bits(74 + e / 32, e % 32 < 16 ? 0 : 4, 15) + 1;
  return b.half(0) * scale / 8.0 * (b.bits(34 + e / 8, e % 8, 1) != 0 ? -value : value);
}

double iq2_xs(const Block& b, int e) {
  const unsigned quant = b.byte(2 + e / 8 * 2) | b.byte(3 + e / 8 * 2) << 8;
  const int value = iq2_value(quant::kIq2XsCodebook[quant & 511], e % 8);
  const unsigned scale = 2 * b.bits(66 + e / 32, e % 32 < 16 ? 0 : 4, 15) + 1;
  return b.half(0) * scale / 8.0 * (seventh_parity(quant >> 9, e % 8) ? -value : value);
}

double iq2_xxs(const Block& b, int e) {
  const int at = 2 + 8 * (e / 32), group = e / 8 % 4;
  const int value = iq2_value(quant::kIq2XxsCodebook[b.byte(at + group)], e % 8);
  unsigned seven = 0;
  for (int i = 0; i < 7; ++i) seven |= b.bit32(at + 4, 7 * group + i) << i;
  return b.half(0) * (2 * b.bits(at + 7, 4, 15) + 1) / 8.0 * (seventh_parity(seven, e % 8) ? -value : value);
}

double iq1_s(const Block& b, int e) {
  const unsigned high = b.byte(34 + e / 32 * 2) | b.byte(35 + e / 32 * 2) << 8;
  const unsigned code = b.byte(2 + e / 8) | (high >> (3 * (e / 8 % 4)) & 7) << 8;
  const int level = int(quant::kIq1Codebook[code] >> (2 * (e % 8)) & 3) - 1;
  return b.half(0) * (2 * (high >> 12 & 7) + 1) * (level + (high >> 15 != 0 ? -0.125 : 0.125));
}

double iq1_m(const Block& b, int e) {
  const unsigned high = b.bits(32 + e / 16, e % 16 < 8 ? 0 : 4, 15);
  const int level = int(quant::kIq1Codebook[b.byte(e / 8) | (high & 7) << 8] >> (2 * (e % 8)) & 3) - 1;
  unsigned d = 0;
  for (int i = 0; i < 4; ++i) d |= b.bits(49 + 2 * i, 4, 15) << (4 * i);
  const unsigned word = b.byte(48 + e / 64 * 2) | b.byte(49 + e / 64 * 2) << 8;
  return half_value(d) * (2 * (word >> (3 * (e / 16 % 4)) & 7) + 1) * (level + (high >= 8 ? -0.125 : 0.125));
}

double tq1_0(const Block& b, int e) {
  const int byte = e < 160 ? e % 32 : e < 240 ? 32 + e % 16 : 48 + e % 4;
  int digit = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
  unsigned fraction = b.byte(byte);  // of 256
  for (; digit > 0; --digit) fraction = fraction * 3 % 256;
  return b.half(52) * (int(fraction * 3 / 256) - 1);
}

double ternary(Format format, const Block& b, int e) {
  switch (format) {
    case Format::kQ1_0:
      return b.bits(2 + e / 8, e % 8, 1) != 0 ? b.half(0) : -b.half(0);
    case Format::kQ2_0:
      return b.half(0) * (int(b.bits(2 + e / 4, 2 * (e % 4), 3)) - 1);
    case Format::kTQ2_0:
      return b.half(64) * (int(b.bits(e / 128 * 32 + e % 32, 2 * (e % 128 / 32), 3)) - 1);
    default:
      return tq1_0(b, e);
  }
}

double q2_k(const Block& b, int e) {
  const int n = e / 128, g = e % 128 / 32, l = e % 32;
  const unsigned q = b.bits(16 + 32 * n + l, 2 * g, 3);
  return b.half(80) * b.bits(e / 16, 0, 15) * q - b.half(82) * b.bits(e / 16, 4, 15);
}

double q3_k(const Block& b, int e) {
  const int n = e / 128, g = e % 128 / 32, l = e % 32, k = e / 16;
  const int q = int(b.bits(32 + 32 * n + l, 2 * g, 3)) - (b.bits(l, 4 * n + g, 1) != 0 ? 0 : 4);
  const unsigned low = k < 8 ? b.bits(96 + k, 0, 15) : b.bits(96 + k - 8, 4, 15);
  const unsigned high = b.bits(96 + 8 + k % 4, 2 * (k / 4), 3);
  return b.half(108) * (int(low | (high << 4)) - 32) * q;
}

// Q4_K and Q5_K: the levels lie in different places, scales and mins in the same.
double with_scale_and_min(const Block& b, int j, unsigned q) {
  const int sc = 4;
  const unsigned scale = j < 4 ? b.bits(sc + j, 0, 63) : b.bits(sc + j + 4, 0, 15) | (b.bits(sc + j - 4, 6, 3) << 4);
  const unsigned min = j < 4 ? b.bits(sc + j + 4, 0, 63) : b.bits(sc + j + 4, 4, 15) | (b.bits(sc + j, 6, 3) << 4);
  return b.half(0) * scale * q - b.half(2) * min;
}

double q4_k(const Block& b, int e) {
  return with_scale_and_min(b, e / 32, b.bits(16 + 32 * (e / 64) + e % 32, e % 64 < 32 ? 0 : 4, 15));
}

double q5_k(const Block& b, int e) {
  const unsigned nibble = b.bits(48 + 32 * (e / 64) + e % 32, e % 64 < 32 ? 0 : 4, 15);
  return with_scale_and_min(b, e / 32, nibble + 16 * b.bits(16 + e % 32, e / 32, 1));
}

double q6_k(const Block& b, int e) {
  const int n = e / 128, g = e % 128 / 32, l = e % 32;
  const unsigned nibble = b.bits(64 * n + l + 32 * (g & 1), g < 2 ? 0 : 4, 15);
  const unsigned high = b.bits(128 + 32 * n + l, 2 * g, 3);
  return b.half(208) * b.signed_byte(192 + e / 16) * (int(nibble | (high << 4)) - 32);
}

// Where the halves of a block are.
std::vector<int> half_offsets(Format format) {
  switch (format) {
    case Format::kF16:
    case Format::kQ8_0:
    case Format::kQ4_0:
    case Format::kQ5_0:
    case Format::kIQ4_NL:
    case Format::kIQ4_XS:
    case Format::kIQ3_S:
    case Format::kIQ3_XXS:
    case Format::kIQ2_S:
    case Format::kIQ2_XS:
    case Format::kIQ2_XXS:
    case Format::kIQ1_S:
    case Format::kQ1_0:
    case Format::kQ2_0:
      return {0};
    case Format::kTQ1_0:
      return {52};
    case Format::kTQ2_0:
      return {64};
    case Format::kQ4_1:
    case Format::kQ5_1:
    case Format::kQ4_K:
    case Format::kQ5_K:
      return {0, 2};
    case Format::kQ2_K:
      return {80, 82};
    case Format::kQ3_K:
      return {108};
    case Format::kQ6_K:
      return {208};
    default:
      return {};
  }
}

// Clears bits of the exponent fields: the highest when all are set (infinity and NaN), or all of them.
void restrict_scales(Format format, std::byte* block, Scales scales) {
  if (scales == Scales::kAny) return;
  const bool subnormal = scales == Scales::kSubnormal;
  for (const int offset : half_offsets(format)) {
    std::byte& high = block[offset + 1];
    if (subnormal) {
      high &= std::byte{0x83};
    } else if ((high & std::byte{0x7c}) == std::byte{0x7c}) {
      high &= std::byte{0xbf};
    }
  }
  if (format == Format::kIQ1_M) {  // the top four bits of its half are those of the last byte, the next four of byte 53
    if (subnormal) {
      block[55] &= std::byte{0x8f};
      block[53] &= std::byte{0x3f};
    } else if ((block[55] & std::byte{0x70}) == std::byte{0x70}) {
      block[55] &= std::byte{0xbf};
    }
  }
  if (format == Format::kNVFP4 && subnormal) {
    for (int k = 0; k < 4; ++k) block[k] &= std::byte{0x87};
  }
  if (format == Format::kMXFP4 && subnormal) block[0] &= std::byte{3};  // exponents 0 and 1 are subnormal floats
  if (format != Format::kF32 && format != Format::kBF16) return;
  const int top = format == Format::kF32 ? 3 : 1;
  block[top] &= subnormal ? std::byte{0x80} : std::byte{0xbf};
  if (subnormal) block[top - 1] &= std::byte{0x7f};
}

}  // namespace

bool has_zero_level(Format format) {
  switch (format) {
    case Format::kIQ4_NL:  // its levels next to zero are -10 and 1
    case Format::kIQ4_XS:
    case Format::kIQ3_S:
    case Format::kIQ3_XXS:
    case Format::kIQ2_S:
    case Format::kIQ2_XS:
    case Format::kIQ2_XXS:
      return false;
    default:
      return true;
  }
}

// Measured, and a little more: the least squared error of a block is not the least error of each of its elements.
float coarseness(Format format) {
  switch (format) {
    case Format::kMXFP4:
      return 0.36f;
    case Format::kQ3_K:
    case Format::kIQ3_S:
      return 0.30f;
    case Format::kIQ3_XXS:
    case Format::kQ2_K:
      return 0.50f;
    case Format::kIQ2_S:
    case Format::kIQ2_XS:
    case Format::kIQ2_XXS:
      return 0.75f;
    default:
      return 0.13f;
  }
}

double half_value(unsigned bits) {
  const int sign = bits >> 15 != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return std::copysign(std::ldexp(mantissa, -24), sign);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

double element_value(Format format, const std::byte* bytes, int e) {
  const Block block(bytes);
  switch (format) {
    case Format::kF32:
    case Format::kF16:
    case Format::kBF16:
      return float_format(format, block);
    case Format::kQ2_K:
      return q2_k(block, e);
    case Format::kQ3_K:
      return q3_k(block, e);
    case Format::kQ4_K:
      return q4_k(block, e);
    case Format::kQ5_K:
      return q5_k(block, e);
    case Format::kQ6_K:
      return q6_k(block, e);
    case Format::kNVFP4:
      return nvfp4(block, e);
    case Format::kIQ4_XS:
      return iq4_xs(block, e);
    case Format::kIQ3_S:
      return iq3_s(block, e);
    case Format::kIQ3_XXS:
      return iq3_xxs(block, e);
    case Format::kIQ2_S:
      return iq2_s(block, e);
    case Format::kIQ2_XS:
      return iq2_xs(block, e);
    case Format::kIQ2_XXS:
      return iq2_xxs(block, e);
    case Format::kIQ1_S:
      return iq1_s(block, e);
    case Format::kIQ1_M:
      return iq1_m(block, e);
    case Format::kTQ1_0:
    case Format::kTQ2_0:
    case Format::kQ1_0:
    case Format::kQ2_0:
      return ternary(format, block, e);
    default:
      return small_block(format, block, e);
  }
}

std::vector<std::byte> random_blocks(const quant::FormatInfo& format, size_t count, uint64_t seed, Scales scales) {
  Random random(seed);
  std::vector<std::byte> bytes = random.bytes(count * format.bytes);
  for (size_t i = 0; i < count; ++i) restrict_scales(format.format, bytes.data() + i * format.bytes, scales);
  return bytes;
}

}  // namespace carat::test
