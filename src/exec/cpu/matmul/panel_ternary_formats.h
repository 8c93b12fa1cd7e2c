#pragma once

// NVFP4 and the formats with one or two bits, or a base-3 digit, for an element, for the integer kernels: see
// panel_formats.h. The levels of the latter are multiplied by 16 and their scales divided by it, so that zero is the
// one of Q5_0 and their products are the same code.

#include "exec/cpu/matmul/panel_formats.h"

namespace carat::exec::cpu {
namespace {

inline Floats sixteenth(Floats d) { return multiply(d, broadcast(0.0625f)); }

struct PanelNVFP4 {
  using Block = quant::BlockNVFP4;
  static constexpr int kElements = 64, kSub = 16, kZeroShift = 2;  // zero = 32
  static constexpr bool kWide = false, kAffine = false;
  static constexpr ByteTable kTable = shifted_table(quant::kMxfp4Values, 32);

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Ints scales = rows.word(0);
    unrolled<4>([&]<int kSubBlock>() {
      // Exponent and mantissa where a float has them: 2^119 times too small, subnormal scales like the others.
      const Ints byte = byte_of<kSubBlock>(scales);
      const Floats bits = as_floats(shift_left<20>(bit_and(byte, broadcast_int(0x7f))));
      const Floats from_127 = to_floats(bit_xor(byte, broadcast_int(0x7f)));
      out.scale(kSubBlock,
                select_less(from_127, broadcast(0.5f), broadcast(0.0f), multiply(bits, broadcast(0x1p119f))));
    });
    Ints words[8];
    rows.words32(offsetof(Block, quants), words);
    unrolled<4>([&]<int kSubBlock>() {
      unrolled<2>([&]<int kWord>() {
        const Ints nibbles = words[2 * kSubBlock + kWord];
        out.word(4 * kSubBlock + kWord, lookup(kTable.entries, low_nibbles(nibbles)));
        out.word(4 * kSubBlock + 2 + kWord, lookup(kTable.entries, high_nibbles(nibbles)));
      });
      out.complete(kSubBlock, 1);
    });
  }
};

struct PanelQ1_0 {
  using Block = quant::BlockQ1_0;
  static constexpr int kElements = 128, kSub = 32, kZeroShift = 3;  // zero = 16
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = sixteenth(low_halves(rows.word(0)));
    Ints words[4];
    rows.words16(offsetof(Block, quants), words);
    unrolled<4>([&]<int kSubBlock>() {
      out.scale(kSubBlock, d);
      unrolled<8>(
          [&]<int kWord>() { out.word(8 * kSubBlock + kWord, shift_left<1>(spread_bits<kWord>(words[kSubBlock]))); });
      out.complete(kSubBlock, 1);
    });
  }
};

struct PanelQ2_0 {
  using Block = quant::BlockQ2_0;
  static constexpr int kElements = 64, kSub = 32, kZeroShift = 3;
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = sixteenth(low_halves(rows.word(0)));
    Ints words[4];
    rows.words16(offsetof(Block, quants), words);
    unrolled<2>([&]<int kSubBlock>() {
      out.scale(kSubBlock, d);
      unrolled<8>([&]<int kWord>() {  // a byte is four elements
        const Ints byte = byte_of<kWord % 4>(words[2 * kSubBlock + kWord / 4]);
        const Ints low = bit_or(shift_left<4>(byte), shift_left<10>(byte));
        const Ints high = bit_or(shift_left<16>(byte), shift_left<22>(byte));
        out.word(8 * kSubBlock + kWord, bit_and(bit_or(low, high), repeat_byte(0x30)));
      });
      out.complete(kSubBlock, 1);
    });
  }
};

struct PanelTQ2_0 {
  using Block = quant::BlockTQ2_0;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 3;
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = sixteenth(high_halves(rows.word(offsetof(Block, d) - 2)));
    unrolled<8>([&]<int kSubBlock>() { out.scale(kSubBlock, d); });
    const Ints mask = repeat_byte(0x30);
    unrolled<2>([&]<int kHalf>() {
      Ints words[8];
      rows.words32(offsetof(Block, quants) + 32 * kHalf, words);
      unrolled<8>([&]<int kWord>() {
        out.word(32 * kHalf + kWord, bit_and(shift_left<4>(words[kWord]), mask));
        out.word(32 * kHalf + 8 + kWord, bit_and(shift_left<2>(words[kWord]), mask));
        out.word(32 * kHalf + 16 + kWord, bit_and(words[kWord], mask));
        out.word(32 * kHalf + 24 + kWord, bit_and(shift_right<2>(words[kWord]), mask));
      });
      out.complete(4 * kHalf, 4);
    });
  }
};

struct PanelTQ1_0 {
  using Block = quant::BlockTQ1_0;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 3;
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = sixteenth(high_halves(rows.word(offsetof(Block, d) - 2)));
    unrolled<8>([&]<int kSubBlock>() { out.scale(kSubBlock, d); });
    Ints words[12];
    rows.words32(offsetof(Block, quants), words);
    rows.words16(offsetof(Block, quants) + 32, words + 8);
    // Digit n of 32 bytes is sub-block n, of the next 16 bytes half of one, of the last four an eighth.
    unrolled<8>([&]<int kWord>() { digits<5, 8>(words[kWord], kWord, out); });
    out.complete(0, 5);
    unrolled<4>([&]<int kWord>() { digits<5, 4>(words[8 + kWord], 40 + kWord, out); });
    digits<4, 1>(rows.word(offsetof(Block, high)), 60, out);
    out.complete(5, 3);
  }

  // Four bytes, fractions of 256: three times one is a digit above a new fraction. Every other byte, so that there is
  // room for the digit.
  template <int kDigits, int kStep, typename Out>
  static void digits(Ints bytes, int first, Out& out) {
    const Ints mask = broadcast_int(0x00ff00ff);
    Ints even = bit_and(bytes, mask), odd = bit_and(shift_right<8>(bytes), mask);
    unrolled<kDigits>([&]<int kDigit>() {
      even = add(even, shift_left<1>(even));
      odd = add(odd, shift_left<1>(odd));
      const Ints low = bit_and(shift_right<4>(even), broadcast_int(0x00300030));
      const Ints high = bit_and(shift_left<4>(odd), broadcast_int(0x30003000));
      out.word(first + kStep * kDigit, bit_or(low, high));
      even = bit_and(even, mask);
      odd = bit_and(odd, mask);
    });
  }
};

}  // namespace
}  // namespace carat::exec::cpu
