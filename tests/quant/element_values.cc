#include "quant/element_values.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

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

double small_block(Format format, const Block& b, int e) {
  static constexpr int kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  static constexpr int kFloat4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
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
      return {0};
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
  if (format == Format::kMXFP4 && subnormal) block[0] &= std::byte{3};  // exponents 0 and 1 are subnormal floats
  if (format != Format::kF32 && format != Format::kBF16) return;
  const int top = format == Format::kF32 ? 3 : 1;
  block[top] &= subnormal ? std::byte{0x80} : std::byte{0xbf};
  if (subnormal) block[top - 1] &= std::byte{0x7f};
}

}  // namespace

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
