#pragma once

// How each quantised weight format is laid out for the integer kernels. A panel holds kLanes weight rows side by side:
// word j has, in lane r, the bytes of elements 4j .. 4j + 3 of row r. The stored blocks are transposed as they are,
// 16 bytes of each row at a time, and unpacked afterwards, so unpacking works on all rows at once.
//
// An element is scale * (u - zero) + bias with its byte u; scale and bias are per row and sub-block of kSub elements.
//   kWide       u uses all 8 bits: a signed byte, or with 128 added where the instruction wants it so (kWideIsUnsigned)
//   kZeroShift  zero = 128 >> kZeroShift (narrow formats without a bias)
//   kAffine     zero = 0 and there is a bias
// Included after one of the simd_*.h headers, in translation units of one instruction set only.

#include <utility>

#include "exec/cpu/kernel_table.h"
#include "quant/blocks.h"

namespace carat::exec::cpu {
namespace {

// Where a decoder puts one block.
struct PanelBlock {
  uint8_t* bytes;  // [elements / 4][kLanes][4]
  float* scales;   // [elements / kSub][kLanes]
  float* biases;   // the same; formats with a bias only

  void word(int j, Ints v) const { store_ints(bytes + static_cast<size_t>(j) * sizeof(Ints), v); }
  void scale(int sub, Floats v) const { store(scales + sub * kLanes, v); }
  void bias(int sub, Floats v) const { store(biases + sub * kLanes, v); }
};

inline Ints repeat_byte(int byte) {
  return broadcast_int(static_cast<int32_t>(0x01010101u * static_cast<uint32_t>(byte)));
}
inline Ints low_nibbles(Ints v) { return bit_and(v, repeat_byte(15)); }
inline Ints high_nibbles(Ints v) { return bit_and(shift_right<4>(v), repeat_byte(15)); }
inline Floats high_halves(Ints v) { return low_halves(shift_right<16>(v)); }
inline Floats negate(Floats v) {
  return as_floats(bit_xor(as_ints(v), broadcast_int(static_cast<int32_t>(0x80000000u))));
}

// Calls body.template operator()<0>() ... <kCount - 1>(): shift distances must be constants.
template <int kCount, typename Body>
inline void unrolled(Body&& body) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) { (body.template operator()<kIndex>(), ...); }
  (std::make_integer_sequence<int, kCount>());
}

// --- 32 elements, one scale -----------------------------------------------------------------------------------------

struct PanelQ8_0 {
  using Block = quant::BlockQ8_0;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = true, kAffine = false;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    out.scale(0, low_halves(gather(block, row_bytes)));
    for (int half = 0; half < 2; ++half) {
      Ints words[4];
      transpose_rows(block + offsetof(Block, quants) + 16 * half, row_bytes, words);
      for (int j = 0; j < 4; ++j) {
        out.word(4 * half + j, kWideIsUnsigned ? bit_xor(words[j], repeat_byte(0x80)) : words[j]);
      }
    }
  }
};

struct PanelQ4_0 {
  using Block = quant::BlockQ4_0;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 4;  // zero = 8
  static constexpr bool kWide = false, kAffine = false;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    out.scale(0, low_halves(gather(block, row_bytes)));
    Ints words[4];
    transpose_rows(block + offsetof(Block, quants), row_bytes, words);
    for (int j = 0; j < 4; ++j) {
      out.word(j, low_nibbles(words[j]));
      out.word(4 + j, high_nibbles(words[j]));
    }
  }
};

struct PanelQ4_1 {
  using Block = quant::BlockQ4_1;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = false, kAffine = true;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    const Ints d_and_m = gather(block, row_bytes);
    out.scale(0, low_halves(d_and_m));
    out.bias(0, high_halves(d_and_m));
    Ints words[4];
    transpose_rows(block + offsetof(Block, quants), row_bytes, words);
    for (int j = 0; j < 4; ++j) {
      out.word(j, low_nibbles(words[j]));
      out.word(4 + j, high_nibbles(words[j]));
    }
  }
};

// The 5-bit values of Q5_0 and Q5_1: nibbles and the bits above them.
inline void decode_five_bits(const uint8_t* quants, const uint8_t* high, size_t row_bytes, const PanelBlock& out) {
  const Ints bits = gather(high, row_bytes);
  Ints words[4];
  transpose_rows(quants, row_bytes, words);
  unrolled<4>([&]<int kWord>() {
    out.word(kWord, bit_or(low_nibbles(words[kWord]), spread_bits<kWord>(bits)));
    out.word(4 + kWord, bit_or(high_nibbles(words[kWord]), spread_bits<4 + kWord>(bits)));
  });
}

struct PanelQ5_0 {
  using Block = quant::BlockQ5_0;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 3;  // zero = 16
  static constexpr bool kWide = false, kAffine = false;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    out.scale(0, low_halves(gather(block, row_bytes)));
    decode_five_bits(block + offsetof(Block, quants), block + offsetof(Block, high), row_bytes, out);
  }
};

struct PanelQ5_1 {
  using Block = quant::BlockQ5_1;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = false, kAffine = true;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    const Ints d_and_m = gather(block, row_bytes);
    out.scale(0, low_halves(d_and_m));
    out.bias(0, high_halves(d_and_m));
    decode_five_bits(block + offsetof(Block, quants), block + offsetof(Block, high), row_bytes, out);
  }
};

inline void decode_table(const uint8_t* quants, size_t row_bytes, const int8_t table[16], const PanelBlock& out) {
  Ints words[4];
  transpose_rows(quants, row_bytes, words);
  for (int j = 0; j < 4; ++j) {
    out.word(j, lookup(table, low_nibbles(words[j])));
    out.word(4 + j, lookup(table, high_nibbles(words[j])));
  }
}

struct ByteTable {
  int8_t entries[16];
};

// The entries with `offset` added, modulo 256.
constexpr ByteTable shifted_table(const int8_t (&values)[16], int offset) {
  ByteTable table{};
  for (int i = 0; i < 16; ++i) table.entries[i] = static_cast<int8_t>(static_cast<uint8_t>(values[i] + offset));
  return table;
}

struct PanelIQ4_NL {
  using Block = quant::BlockIQ4_NL;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = true, kAffine = false;
  static constexpr ByteTable kTable = shifted_table(quant::kIq4NlValues, kWideIsUnsigned ? 128 : 0);

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    out.scale(0, low_halves(gather(block, row_bytes)));
    decode_table(block + offsetof(Block, quants), row_bytes, kTable.entries, out);
  }
};

struct PanelMXFP4 {
  using Block = quant::BlockMXFP4;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 3;  // zero = 16
  static constexpr bool kWide = false, kAffine = false;
  static constexpr ByteTable kTable = shifted_table(quant::kMxfp4Values, 16);

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    // 2^(E - 128). E = 0 and 1 are subnormal, so the power is taken with twice the exponent range: 2^(E - 126) / 4.
    const Ints exponent = bit_and(gather(block, row_bytes), broadcast_int(0xff));
    const Floats above = as_floats(shift_left<23>(subtract(exponent, broadcast_int(1))));
    const Floats below = multiply(as_floats(shift_left<23>(add(exponent, broadcast_int(1)))), broadcast(0.25f));
    out.scale(0, select_less(to_floats(exponent), broadcast(2.0f), below, above));
    decode_table(block + offsetof(Block, quants), row_bytes, kTable.entries, out);
  }
};

// --- 256 elements, sub-blocks of 16 or 32 ---------------------------------------------------------------------------

// Byte kByte of each lane as a number.
template <int kByte>
inline Ints byte_of(Ints v) {
  return bit_and(shift_right<8 * kByte>(v), broadcast_int(255));
}

// 32 bytes of each row as 8 words.
inline void transpose32(const uint8_t* bytes, size_t row_bytes, Ints words[8]) {
  transpose_rows(bytes, row_bytes, words);
  transpose_rows(bytes + 16, row_bytes, words + 4);
}

// The scales and minimums of Q4_K and Q5_K, whose blocks begin alike.
inline void decode_scales_and_mins(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
  const Ints d_and_dmin = gather(block, row_bytes);
  const Floats d = low_halves(d_and_dmin);
  const Floats negative_dmin = negate(high_halves(d_and_dmin));
  const uint8_t* packed = block + offsetof(quant::BlockQ4_K, scales);
  const Ints first = gather(packed, row_bytes), second = gather(packed + 4, row_bytes),
             third = gather(packed + 8, row_bytes);
  const Ints six = broadcast_int(63), four = broadcast_int(15), two = broadcast_int(0x30);
  unrolled<4>([&]<int kByte>() {
    const Ints scale = bit_and(shift_right<8 * kByte>(first), six);
    const Ints minimum = bit_and(shift_right<8 * kByte>(second), six);
    out.scale(kByte, multiply(d, to_floats(scale)));
    out.bias(kByte, multiply(negative_dmin, to_floats(minimum)));
    // Sub-blocks 4 to 7: four bits in the third word, the two above them on top of the first four sub-blocks' bytes.
    const Ints late_scale =
        bit_or(bit_and(shift_right<8 * kByte>(third), four), bit_and(shift_right<8 * kByte + 2>(first), two));
    const Ints late_minimum =
        bit_or(bit_and(shift_right<8 * kByte + 4>(third), four), bit_and(shift_right<8 * kByte + 2>(second), two));
    out.scale(4 + kByte, multiply(d, to_floats(late_scale)));
    out.bias(4 + kByte, multiply(negative_dmin, to_floats(late_minimum)));
  });
}

struct PanelQ4_K {
  using Block = quant::BlockQ4_K;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = false, kAffine = true;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    decode_scales_and_mins(block, row_bytes, out);
    for (int pair = 0; pair < 4; ++pair) {
      Ints words[8];
      transpose32(block + offsetof(Block, quants) + 32 * pair, row_bytes, words);
      for (int j = 0; j < 8; ++j) {
        out.word(16 * pair + j, low_nibbles(words[j]));
        out.word(16 * pair + 8 + j, high_nibbles(words[j]));
      }
    }
  }
};

struct PanelQ5_K {
  using Block = quant::BlockQ5_K;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = false, kAffine = true;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    decode_scales_and_mins(block, row_bytes, out);
    Ints high[8];
    transpose32(block + offsetof(Block, high), row_bytes, high);
    unrolled<4>([&]<int kPair>() {
      Ints words[8];
      transpose32(block + offsetof(Block, quants) + 32 * kPair, row_bytes, words);
      const Ints one = repeat_byte(1);
      for (int j = 0; j < 8; ++j) {
        const Ints even = shift_left<4>(bit_and(shift_right<2 * kPair>(high[j]), one));
        const Ints odd = shift_left<4>(bit_and(shift_right<2 * kPair + 1>(high[j]), one));
        out.word(16 * kPair + j, bit_or(low_nibbles(words[j]), even));
        out.word(16 * kPair + 8 + j, bit_or(high_nibbles(words[j]), odd));
      }
    });
  }
};

struct PanelQ6_K {
  using Block = quant::BlockQ6_K;
  static constexpr int kElements = 256, kSub = 16, kZeroShift = 2;  // zero = 32
  static constexpr bool kWide = false, kAffine = false;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    // d is the last half of the block: gathering from two bytes earlier stays inside the row.
    const Floats d = high_halves(gather(block + offsetof(Block, d) - 2, row_bytes));
    for (int word = 0; word < 4; ++word) {
      const Ints scales = gather(block + offsetof(Block, scales) + 4 * word, row_bytes);
      unrolled<4>([&]<int kByte>() {
        const Ints scale = shift_right_signed<24>(shift_left<24 - 8 * kByte>(scales));
        out.scale(4 * word + kByte, multiply(d, to_floats(scale)));
      });
    }
    for (int n = 0; n < 2; ++n) decode_half(block, row_bytes, n, out);
  }

  // Elements 128n .. 128n + 127: two groups of 32 bytes of nibbles, one of 32 bytes of bit pairs.
  static void decode_half(const uint8_t* block, size_t row_bytes, int n, const PanelBlock& out) {
    Ints first[8], second[8], high[8];
    transpose32(block + offsetof(Block, low) + 64 * n, row_bytes, first);
    transpose32(block + offsetof(Block, low) + 64 * n + 32, row_bytes, second);
    transpose32(block + offsetof(Block, high) + 32 * n, row_bytes, high);
    const Ints pair = repeat_byte(0x30);
    for (int j = 0; j < 8; ++j) {
      out.word(32 * n + j, bit_or(low_nibbles(first[j]), bit_and(shift_left<4>(high[j]), pair)));
      out.word(32 * n + 8 + j, bit_or(low_nibbles(second[j]), bit_and(shift_left<2>(high[j]), pair)));
      out.word(32 * n + 16 + j, bit_or(high_nibbles(first[j]), bit_and(high[j], pair)));
      out.word(32 * n + 24 + j, bit_or(high_nibbles(second[j]), bit_and(shift_right<2>(high[j]), pair)));
    }
  }
};

struct PanelQ3_K {
  using Block = quant::BlockQ3_K;
  static constexpr int kElements = 256, kSub = 16, kZeroShift = 5;  // zero = 4
  static constexpr bool kWide = false, kAffine = false;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    decode_scales(block, row_bytes, out);
    Ints high[8];
    transpose32(block + offsetof(Block, high), row_bytes, high);
    unrolled<2>([&]<int kHalf>() {
      Ints words[8];
      transpose32(block + offsetof(Block, quants) + 32 * kHalf, row_bytes, words);
      unrolled<4>([&]<int kGroup>() {
        for (int j = 0; j < 8; ++j) {
          const Ints low = bit_and(shift_right<2 * kGroup>(words[j]), repeat_byte(3));
          const Ints bit = bit_and(shift_right<4 * kHalf + kGroup>(high[j]), repeat_byte(1));
          out.word(32 * kHalf + 8 * kGroup + j, bit_or(low, shift_left<2>(bit)));
        }
      });
    });
  }

  // 16 scales of six bits: four in the nibbles of the first eight bytes, two in the last four bytes.
  static void decode_scales(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    const Floats d = high_halves(gather(block + offsetof(Block, d) - 2, row_bytes));
    const uint8_t* packed = block + offsetof(Block, scales);
    const Ints nibbles[2] = {gather(packed, row_bytes), gather(packed + 4, row_bytes)};
    const Ints pairs = gather(packed + 8, row_bytes);
    unrolled<16>([&]<int kSubBlock>() {
      constexpr int kByte = kSubBlock % 4;
      const Ints source = nibbles[kSubBlock / 4 % 2];
      const Ints low = bit_and(shift_right<8 * kByte + (kSubBlock < 8 ? 0 : 4)>(source), broadcast_int(15));
      const Ints high = bit_and(shift_right<8 * kByte + 2 * (kSubBlock / 4)>(pairs), broadcast_int(3));
      const Ints scale = subtract(bit_or(low, shift_left<4>(high)), broadcast_int(32));
      out.scale(kSubBlock, multiply(d, to_floats(scale)));
    });
  }
};

struct PanelQ2_K {
  using Block = quant::BlockQ2_K;
  static constexpr int kElements = 256, kSub = 16, kZeroShift = 0;
  static constexpr bool kWide = false, kAffine = true;

  static void decode(const uint8_t* block, size_t row_bytes, const PanelBlock& out) {
    const Ints d_and_dmin = gather(block + offsetof(Block, d), row_bytes);
    const Floats d = low_halves(d_and_dmin);
    const Floats negative_dmin = negate(high_halves(d_and_dmin));
    for (int word = 0; word < 4; ++word) {
      const Ints packed = gather(block + offsetof(Block, scales) + 4 * word, row_bytes);
      unrolled<4>([&]<int kByte>() {
        const Ints both = byte_of<kByte>(packed);
        out.scale(4 * word + kByte, multiply(d, to_floats(bit_and(both, broadcast_int(15)))));
        out.bias(4 * word + kByte, multiply(negative_dmin, to_floats(shift_right<4>(both))));
      });
    }
    for (int half = 0; half < 2; ++half) {
      Ints words[8];
      transpose32(block + offsetof(Block, quants) + 32 * half, row_bytes, words);
      unrolled<4>([&]<int kGroup>() {
        for (int j = 0; j < 8; ++j) {
          out.word(32 * half + 8 * kGroup + j, bit_and(shift_right<2 * kGroup>(words[j]), repeat_byte(3)));
        }
      });
    }
  }
};

}  // namespace
}  // namespace carat::exec::cpu
