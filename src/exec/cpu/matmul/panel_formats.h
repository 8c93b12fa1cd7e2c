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
class StoredRows {
 public:
  // next: the beginning of the next tile.
  StoredRows(const uint8_t* first, size_t row_bytes, const uint8_t* next) : next_(next) {
    rows_.stride = row_bytes;
    for (int quad = 0; quad < kLanes / 4; ++quad) {
      set_quad(quad, first + static_cast<size_t>(4 * quad) * row_bytes);
    }
  }

  // Lane r: four bytes of row r.
  Ints word(size_t offset) const { return gather(rows_, offset); }
  // Lane r of words[j]: bytes 4j .. 4j + 3 of the 16 bytes of row r.
  void words16(size_t offset, Ints words[4]) {
    transpose_rows(rows_, offset, words);
    for (int line = 0; line < 16 * kLanes; line += 64) prefetch_behind(words[line / 64], next_ + asked_ + line);
    asked_ += 16 * kLanes;
  }
  void words32(size_t offset, Ints words[8]) {
    words16(offset, words);
    words16(offset + 16, words + 4);
  }
  // On to the next block, `bytes` further, asking for what the reads of this one left out.
  void advance(size_t bytes) {
    for (; asked_ < kLanes * bytes; asked_ += 64) __builtin_prefetch(next_ + asked_, 0, 2);
    next_ += kLanes * bytes;
    asked_ = 0;
    for (int quad = 0; quad < kLanes / 4; ++quad) set_quad(quad, rows_.quads[quad] + bytes);
  }

 private:
  void set_quad(int quad, const uint8_t* row) {
    // The compiler must not know what one pointer has to do with another: as multiples of one stride sixteen addresses
    // do not fit the registers.
    asm("" : "+r"(row));
    rows_.quads[quad] = row;
  }

  RowPointers rows_;
  const uint8_t* next_;
  size_t asked_ = 0;  // bytes from next_ on
};

// Where a decoder puts one block: words and scales in the order they are found, and which sub-blocks are complete,
// counted from the first. Here into memory, for many rows of activations; DirectBlock multiplies at once.
struct PanelBlock {
  uint8_t* bytes;  // [elements / 4][kLanes][4]
  float* scales;   // [elements / kSub][kLanes]
  float* biases;   // the same; formats with a bias only

  void word(int j, Ints v) const { store_ints(bytes + static_cast<size_t>(j) * sizeof(Ints), v); }
  void scale(int sub, Floats v) const { store(scales + sub * kLanes, v); }
  void bias(int sub, Floats v) const { store(biases + sub * kLanes, v); }
  void complete(int, int) const {}
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

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    out.scale(0, low_halves(rows.word(0)));
    Ints words[8];
    rows.words32(offsetof(Block, quants), words);
    unrolled<8>([&]<int kWord>() {
      out.word(kWord, kWideIsUnsigned ? bit_xor(words[kWord], repeat_byte(0x80)) : words[kWord]);
    });
    out.complete(0, 1);
  }
};

template <typename Out>
inline void decode_nibbles(StoredRows& rows, size_t quants, Out& out) {
  Ints words[4];
  rows.words16(quants, words);
  unrolled<4>([&]<int kWord>() {
    out.word(kWord, low_nibbles(words[kWord]));
    out.word(4 + kWord, high_nibbles(words[kWord]));
  });
  out.complete(0, 1);
}

struct PanelQ4_0 {
  using Block = quant::BlockQ4_0;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 4;  // zero = 8
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    out.scale(0, low_halves(rows.word(0)));
    decode_nibbles(rows, offsetof(Block, quants), out);
  }
};

struct PanelQ4_1 {
  using Block = quant::BlockQ4_1;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = false, kAffine = true;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Ints d_and_m = rows.word(0);
    out.scale(0, low_halves(d_and_m));
    out.bias(0, high_halves(d_and_m));
    decode_nibbles(rows, offsetof(Block, quants), out);
  }
};

// The 5-bit values of Q5_0 and Q5_1: nibbles and the bits above them.
template <typename Out>
inline void decode_five_bits(StoredRows& rows, size_t quants, size_t high, Out& out) {
  const Ints bits = rows.word(high);
  Ints words[4];
  rows.words16(quants, words);
  unrolled<4>([&]<int kWord>() {
    out.word(kWord, bit_or(low_nibbles(words[kWord]), spread_bits<kWord>(bits)));
    out.word(4 + kWord, bit_or(high_nibbles(words[kWord]), spread_bits<4 + kWord>(bits)));
  });
  out.complete(0, 1);
}

struct PanelQ5_0 {
  using Block = quant::BlockQ5_0;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 3;  // zero = 16
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    out.scale(0, low_halves(rows.word(0)));
    decode_five_bits(rows, offsetof(Block, quants), offsetof(Block, high), out);
  }
};

struct PanelQ5_1 {
  using Block = quant::BlockQ5_1;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = false, kAffine = true;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Ints d_and_m = rows.word(0);
    out.scale(0, low_halves(d_and_m));
    out.bias(0, high_halves(d_and_m));
    decode_five_bits(rows, offsetof(Block, quants), offsetof(Block, high), out);
  }
};

template <typename Out>
inline void decode_table(StoredRows& rows, size_t quants, const int8_t table[16], Out& out) {
  Ints words[4];
  rows.words16(quants, words);
  unrolled<4>([&]<int kWord>() {
    out.word(kWord, lookup(table, low_nibbles(words[kWord])));
    out.word(4 + kWord, lookup(table, high_nibbles(words[kWord])));
  });
  out.complete(0, 1);
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

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    out.scale(0, low_halves(rows.word(0)));
    decode_table(rows, offsetof(Block, quants), kTable.entries, out);
  }
};

struct PanelMXFP4 {
  using Block = quant::BlockMXFP4;
  static constexpr int kElements = 32, kSub = 32, kZeroShift = 3;  // zero = 16
  static constexpr bool kWide = false, kAffine = false;
  static constexpr ByteTable kTable = shifted_table(quant::kMxfp4Values, 16);

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
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
template <typename Out>
inline void decode_scales_and_mins(StoredRows& rows, Out& out) {
  static_assert(offsetof(quant::BlockQ4_K, scales) == 4);
  Ints head[4];
  rows.words16(0, head);
  const Floats d = low_halves(head[0]);
  const Floats negative_dmin = negate(high_halves(head[0]));
  const Ints first = head[1], second = head[2], third = head[3];
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

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    decode_scales_and_mins(rows, out);
    unrolled<4>([&]<int kPair>() {
      Ints words[8];
      rows.words32(offsetof(Block, quants) + 32 * kPair, words);
      unrolled<8>([&]<int kWord>() {
        out.word(16 * kPair + kWord, low_nibbles(words[kWord]));
        out.word(16 * kPair + 8 + kWord, high_nibbles(words[kWord]));
      });
      out.complete(2 * kPair, 2);
    });
  }
};

struct PanelQ5_K {
  using Block = quant::BlockQ5_K;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = false, kAffine = true;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    decode_scales_and_mins(rows, out);
    Ints high[8];
    rows.words32(offsetof(Block, high), high);
    unrolled<4>([&]<int kPair>() {
      Ints words[8];
      rows.words32(offsetof(Block, quants) + 32 * kPair, words);
      const Ints one = repeat_byte(1);
      unrolled<8>([&]<int kWord>() {
        const Ints even = shift_left<4>(bit_and(shift_right<2 * kPair>(high[kWord]), one));
        const Ints odd = shift_left<4>(bit_and(shift_right<2 * kPair + 1>(high[kWord]), one));
        out.word(16 * kPair + kWord, bit_or(low_nibbles(words[kWord]), even));
        out.word(16 * kPair + 8 + kWord, bit_or(high_nibbles(words[kWord]), odd));
      });
      out.complete(2 * kPair, 2);
    });
  }
};

struct PanelQ6_K {
  using Block = quant::BlockQ6_K;
  static constexpr int kElements = 256, kSub = 16, kZeroShift = 2;  // zero = 32
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    // d is the last half of the block: gathering from two bytes earlier stays inside the row.
    const Floats d = high_halves(rows.word(offsetof(Block, d) - 2));
    Ints scales[4];
    rows.words16(offsetof(Block, scales), scales);
    unrolled<4>([&]<int kWord>() {
      unrolled<4>([&]<int kByte>() {
        const Ints scale = shift_right_signed<24>(shift_left<24 - 8 * kByte>(scales[kWord]));
        out.scale(4 * kWord + kByte, multiply(d, to_floats(scale)));
      });
    });
    decode_half<0>(rows, out);
    decode_half<1>(rows, out);
  }

  // Elements 128 kHalf .. 128 kHalf + 127: two groups of 32 bytes of nibbles, one of 32 bytes of bit pairs.
  template <int kHalf, typename Out>
  static void decode_half(StoredRows& rows, Out& out) {
    Ints first[8], second[8], high[8];
    rows.words32(offsetof(Block, low) + 64 * kHalf, first);
    rows.words32(offsetof(Block, low) + 64 * kHalf + 32, second);
    rows.words32(offsetof(Block, high) + 32 * kHalf, high);
    const Ints pair = repeat_byte(0x30);
    unrolled<8>([&]<int kWord>() {
      const Ints a = first[kWord], b = second[kWord], bits = high[kWord];
      out.word(32 * kHalf + kWord, bit_or(low_nibbles(a), bit_and(shift_left<4>(bits), pair)));
      out.word(32 * kHalf + 8 + kWord, bit_or(low_nibbles(b), bit_and(shift_left<2>(bits), pair)));
      out.word(32 * kHalf + 16 + kWord, bit_or(high_nibbles(a), bit_and(bits, pair)));
      out.word(32 * kHalf + 24 + kWord, bit_or(high_nibbles(b), bit_and(shift_right<2>(bits), pair)));
    });
    out.complete(8 * kHalf, 8);
  }
};

struct PanelQ3_K {
  using Block = quant::BlockQ3_K;
  static constexpr int kElements = 256, kSub = 16, kZeroShift = 5;  // zero = 4
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    decode_scales(rows, out);
    Ints high[8];
    rows.words32(offsetof(Block, high), high);
    unrolled<2>([&]<int kHalf>() {
      Ints words[8];
      rows.words32(offsetof(Block, quants) + 32 * kHalf, words);
      unrolled<4>([&]<int kGroup>() {
        unrolled<8>([&]<int kWord>() {
          const Ints low = bit_and(shift_right<2 * kGroup>(words[kWord]), repeat_byte(3));
          const Ints bit = bit_and(shift_right<4 * kHalf + kGroup>(high[kWord]), repeat_byte(1));
          out.word(32 * kHalf + 8 * kGroup + kWord, bit_or(low, shift_left<2>(bit)));
        });
        out.complete(8 * kHalf + 2 * kGroup, 2);
      });
    });
  }

  // 16 scales of six bits: four in the nibbles of the first eight bytes, two in the last four bytes.
  template <typename Out>
  static void decode_scales(const StoredRows& rows, Out& out) {
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

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Ints d_and_dmin = rows.word(offsetof(Block, d));
    const Floats d = low_halves(d_and_dmin);
    const Floats negative_dmin = negate(high_halves(d_and_dmin));
    Ints packed[4];
    rows.words16(offsetof(Block, scales), packed);
    unrolled<4>([&]<int kWord>() {
      unrolled<4>([&]<int kByte>() {
        const Ints both = byte_of<kByte>(packed[kWord]);
        out.scale(4 * kWord + kByte, multiply(d, to_floats(bit_and(both, broadcast_int(15)))));
        out.bias(4 * kWord + kByte, multiply(negative_dmin, to_floats(shift_right<4>(both))));
      });
    });
    unrolled<2>([&]<int kHalf>() {
      Ints words[8];
      rows.words32(offsetof(Block, quants) + 32 * kHalf, words);
      unrolled<4>([&]<int kGroup>() {
        unrolled<8>([&]<int kWord>() {
          out.word(32 * kHalf + 8 * kGroup + kWord, bit_and(shift_right<2 * kGroup>(words[kWord]), repeat_byte(3)));
        });
        out.complete(8 * kHalf + 2 * kGroup, 2);
      });
    });
  }
};

}  // namespace
}  // namespace carat::exec::cpu
