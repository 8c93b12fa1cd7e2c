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

// The same block of kLanes weight rows, and what is read next.
//
// With one activation row the kernel is as fast as memory only when the loads never wait, and the rows of a tile are
// too short for the hardware to see the next one coming. So each read asks for as many bytes of the next tile; asking
// for them all at once would fill the queue of outstanding loads and stall this tile's.
struct StoredRows {
  const uint8_t* block;
  size_t row_bytes;
  const uint8_t* ahead;

  // Lane r: four bytes of row r.
  Ints word(size_t offset) const { return gather(block + offset, row_bytes); }
  // Lane r of words[j]: bytes 4j .. 4j + 3 of the 16 bytes of row r.
  void words16(size_t offset, Ints words[4]) {
    for (int line = 0; line < 16 * kLanes; line += 64) __builtin_prefetch(ahead + line, 0, 2);
    ahead += 16 * kLanes;
    transpose_rows(block + offset, row_bytes, words);
  }
  void words32(size_t offset, Ints words[8]) {
    words16(offset, words);
    words16(offset + 16, words + 4);
  }
  // On to the next block, `bytes` further, asking for what the reads of this one left out.
  void advance(size_t bytes, const uint8_t* next_ahead) {
    for (; ahead < next_ahead; ahead += 64) __builtin_prefetch(ahead, 0, 2);
    ahead = next_ahead;
    block += bytes;
  }
};

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

  static void decode(StoredRows& rows, const PanelBlock& out) {
    out.scale(0, low_halves(rows.word(0)));
    for (int half = 0; half < 2; ++half) {
      Ints words[4];
      rows.words16(offsetof(Block, quants) + 16 * half, words);
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

  static void decode(StoredRows& rows, const PanelBlock& out) {
    out.scale(0, low_halves(rows.word(0)));
    Ints words[4];
    rows.words16(offsetof(Block, quants), words);
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

  static void decode(StoredRows& rows, const PanelBlock& out) {
    const Ints d_and_m = rows.word(0);
    out.scale(0, low_halves(d_and_m));
    out.bias(0, high_halves(d_and_m));
    Ints words[4];
    rows.words16(offsetof(Block, quants), words);
    for (int j = 0; j < 4; ++j) {
      out.word(j, low_nibbles(words[j]));
      out.word(4 + j, high_nibbles(words[j]));
    }
  }
};

// The 5-bit values of Q5_0 and Q5_1: nibbles and the bits above them.
inline void decode_five_bits(StoredRows& rows, size_t quants, size_t high, const PanelBlock& out) {
  const Ints bits = rows.word(high);
  Ints words[4];
  rows.words16(quants, words);
  unrolled<4>([&]<int kWord>() {
    out.word(kWord, bit_or(low_nibbles(words[kWord]), spread_bits<kWord>(bits)));
    out.word(4 + kWord, bit_or(high_nibbles(words[kWord]), spread_bits<4 + kWord>(bits)));
  });
}

struct PanelQ5_0 {
  using Block = quant::BlockQ5_0;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 3;  // zero = 16
  static constexpr bool kWide = false, kAffine = false;

  static void decode(StoredRows& rows, const PanelBlock& out) {
    out.scale(0, low_halves(rows.word(0)));
    decode_five_bits(rows, offsetof(Block, quants), offsetof(Block, high), out);
  }
};

struct PanelQ5_1 {
  using Block = quant::BlockQ5_1;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = false, kAffine = true;

  static void decode(StoredRows& rows, const PanelBlock& out) {
    const Ints d_and_m = rows.word(0);
    out.scale(0, low_halves(d_and_m));
    out.bias(0, high_halves(d_and_m));
    decode_five_bits(rows, offsetof(Block, quants), offsetof(Block, high), out);
  }
};

inline void decode_table(StoredRows& rows, size_t quants, const int8_t table[16], const PanelBlock& out) {
  Ints words[4];
  rows.words16(quants, words);
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

  static void decode(StoredRows& rows, const PanelBlock& out) {
    out.scale(0, low_halves(rows.word(0)));
    decode_table(rows, offsetof(Block, quants), kTable.entries, out);
  }
};

struct PanelMXFP4 {
  using Block = quant::BlockMXFP4;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 3;  // zero = 16
  static constexpr bool kWide = false, kAffine = false;
  static constexpr ByteTable kTable = shifted_table(quant::kMxfp4Values, 16);

  static void decode(StoredRows& rows, const PanelBlock& out) {
    // 2^(E - 128). E = 0 and 1 are subnormal, so the power is taken with twice the exponent range: 2^(E - 126) / 4.
    const Ints exponent = bit_and(rows.word(0), broadcast_int(0xff));
    const Floats above = as_floats(shift_left<23>(subtract(exponent, broadcast_int(1))));
    const Floats below = multiply(as_floats(shift_left<23>(add(exponent, broadcast_int(1)))), broadcast(0.25f));
    out.scale(0, select_less(to_floats(exponent), broadcast(2.0f), below, above));
    decode_table(rows, offsetof(Block, quants), kTable.entries, out);
  }
};

// --- 256 elements, sub-blocks of 16 or 32 ---------------------------------------------------------------------------

// Byte kByte of each lane as a number.
template <int kByte>
inline Ints byte_of(Ints v) {
  return bit_and(shift_right<8 * kByte>(v), broadcast_int(255));
}

// The scales and minimums of Q4_K and Q5_K, whose blocks begin alike.
inline void decode_scales_and_mins(const StoredRows& rows, const PanelBlock& out) {
  const Ints d_and_dmin = rows.word(0);
  const Floats d = low_halves(d_and_dmin);
  const Floats negative_dmin = negate(high_halves(d_and_dmin));
  constexpr size_t kPacked = offsetof(quant::BlockQ4_K, scales);
  const Ints first = rows.word(kPacked), second = rows.word(kPacked + 4), third = rows.word(kPacked + 8);
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

  static void decode(StoredRows& rows, const PanelBlock& out) {
    decode_scales_and_mins(rows, out);
    for (int pair = 0; pair < 4; ++pair) {
      Ints words[8];
      rows.words32(offsetof(Block, quants) + 32 * pair, words);
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

  static void decode(StoredRows& rows, const PanelBlock& out) {
    decode_scales_and_mins(rows, out);
    Ints high[8];
    rows.words32(offsetof(Block, high), high);
    unrolled<4>([&]<int kPair>() {
      Ints words[8];
      rows.words32(offsetof(Block, quants) + 32 * kPair, words);
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

  static void decode(StoredRows& rows, const PanelBlock& out) {
    // d is the last half of the block: gathering from two bytes earlier stays inside the row.
    const Floats d = high_halves(rows.word(offsetof(Block, d) - 2));
    for (int word = 0; word < 4; ++word) {
      const Ints scales = rows.word(offsetof(Block, scales) + 4 * word);
      unrolled<4>([&]<int kByte>() {
        const Ints scale = shift_right_signed<24>(shift_left<24 - 8 * kByte>(scales));
        out.scale(4 * word + kByte, multiply(d, to_floats(scale)));
      });
    }
    for (int n = 0; n < 2; ++n) decode_half(rows, n, out);
  }

  // Elements 128n .. 128n + 127: two groups of 32 bytes of nibbles, one of 32 bytes of bit pairs.
  static void decode_half(StoredRows& rows, int n, const PanelBlock& out) {
    Ints first[8], second[8], high[8];
    rows.words32(offsetof(Block, low) + 64 * n, first);
    rows.words32(offsetof(Block, low) + 64 * n + 32, second);
    rows.words32(offsetof(Block, high) + 32 * n, high);
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

  static void decode(StoredRows& rows, const PanelBlock& out) {
    decode_scales(rows, out);
    Ints high[8];
    rows.words32(offsetof(Block, high), high);
    unrolled<2>([&]<int kHalf>() {
      Ints words[8];
      rows.words32(offsetof(Block, quants) + 32 * kHalf, words);
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
  static void decode_scales(const StoredRows& rows, const PanelBlock& out) {
    const Floats d = high_halves(rows.word(offsetof(Block, d) - 2));
    constexpr size_t kPacked = offsetof(Block, scales);
    const Ints nibbles[2] = {rows.word(kPacked), rows.word(kPacked + 4)};
    const Ints pairs = rows.word(kPacked + 8);
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

  static void decode(StoredRows& rows, const PanelBlock& out) {
    const Ints d_and_dmin = rows.word(offsetof(Block, d));
    const Floats d = low_halves(d_and_dmin);
    const Floats negative_dmin = negate(high_halves(d_and_dmin));
    for (int word = 0; word < 4; ++word) {
      const Ints packed = rows.word(offsetof(Block, scales) + 4 * word);
      unrolled<4>([&]<int kByte>() {
        const Ints both = byte_of<kByte>(packed);
        out.scale(4 * word + kByte, multiply(d, to_floats(bit_and(both, broadcast_int(15)))));
        out.bias(4 * word + kByte, multiply(negative_dmin, to_floats(shift_right<4>(both))));
      });
    }
    for (int half = 0; half < 2; ++half) {
      Ints words[8];
      rows.words32(offsetof(Block, quants) + 32 * half, words);
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
