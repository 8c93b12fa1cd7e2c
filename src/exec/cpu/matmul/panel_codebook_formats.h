#pragma once

// IQ1, IQ2, IQ3 and IQ4_XS for the integer kernels: see panel_formats.h. A code is looked up lane by lane, which gives
// the bytes of all its elements; a set sign then mirrors a byte about `zero`. The codebooks of IQ3 are small enough for
// permutations of words to look up all lanes at once. Included by panel_formats.h's users.

#include <type_traits>

#include "exec/cpu/matmul/codebook_tables.h"
#include "exec/cpu/matmul/panel_formats.h"
#include "quant/codebooks.h"

namespace carat::exec::cpu {
namespace {

// kCount bits from bit kFrom on, moved to bit kTo.
template <int kFrom, int kCount, int kTo>
inline Ints moved_bits(Ints v) {
  const Ints mask = broadcast_int(((1 << kCount) - 1) << kTo);
  if constexpr (kFrom >= kTo) {
    return bit_and(shift_right<kFrom - kTo>(v), mask);
  } else {
    return bit_and(shift_left<kTo - kFrom>(v), mask);
  }
}

// 2 v + 1.
inline Floats odd(Ints v) { return to_floats(bit_or(shift_left<1>(v), broadcast_int(1))); }

// Four bytes of seven signs each, whose eighth makes their number even.
inline Ints with_eighth_signs(Ints seven) {
  const Ints folded = bit_xor(seven, shift_right<4>(seven));
  const Ints pairs = bit_xor(folded, shift_right<2>(folded));
  const Ints parity = bit_and(bit_xor(pairs, shift_right<1>(pairs)), repeat_byte(1));
  return bit_or(seven, shift_left<7>(parity));
}

// The 28 lowest bits of IQ2_XXS's and IQ3_XXS's second words: four times seven signs.
inline Ints signs_of_28_bits(Ints v) {
  const Ints low = bit_or(bit_and(v, broadcast_int(0x7f)), bit_and(shift_left<1>(v), broadcast_int(0x7f00)));
  const Ints high =
      bit_or(bit_and(shift_left<2>(v), broadcast_int(0x7f0000)), bit_and(shift_left<3>(v), broadcast_int(0x7f000000)));
  return with_eighth_signs(bit_or(low, high));
}

// Words 2 kGroup and 2 kGroup + 1 of the 32 elements from word `first` on, whose signs are `signs`: eight elements.
template <int kGroup, typename Out>
inline void signed_eight(const Ints pair[2], Ints signs, int first, Out& out) {
  const Ints twice_zero = repeat_byte(2 * kIq2Zero);
  out.word(first + 2 * kGroup, mirrored<2 * kGroup>(pair[0], signs, twice_zero));
  out.word(first + 2 * kGroup + 1, mirrored<2 * kGroup + 1>(pair[1], signs, twice_zero));
}

// Groups kLow and kHigh of IQ2, whose codes are the halves of each lane.
template <int kLow, int kHigh, typename Out>
inline void two_eights(const uint64_t* table, Ints codes, Ints signs, int first, Out& out) {
  Ints pair[2];
  lookup_pairs(table, bit_and(codes, broadcast_int(0xffff)), pair);
  signed_eight<kLow>(pair, signs, first, out);
  lookup_pairs(table, shift_right<16>(codes), pair);
  signed_eight<kHigh>(pair, signs, first, out);
}

// Bytes 0 and 2 of each lane in its halves, and bytes 1 and 3.
inline Ints even_codes(Ints v) { return bit_and(v, broadcast_int(0x00ff00ff)); }
inline Ints odd_codes(Ints v) { return bit_and(shift_right<8>(v), broadcast_int(0x00ff00ff)); }

struct PanelIQ2_XXS {
  using Block = quant::BlockIQ2_XXS;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 1;  // zero = 64
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = multiply(low_halves(rows.word(0)), broadcast(0.125f));
    unrolled<4>([&]<int kPair>() {
      Ints words[4];
      rows.words16(offsetof(Block, quants) + 16 * kPair, words);
      unrolled<2>([&]<int kHalf>() {
        constexpr int kSubBlock = 2 * kPair + kHalf;
        const Ints codes = words[2 * kHalf], packed = words[2 * kHalf + 1];
        out.scale(kSubBlock, multiply(d, odd(shift_right<28>(packed))));
        const Ints signs = signs_of_28_bits(packed);
        const uint64_t* table = kCodebookTables.iq2_xxs.data();
        two_eights<0, 2>(table, even_codes(codes), signs, 8 * kSubBlock, out);
        two_eights<1, 3>(table, odd_codes(codes), signs, 8 * kSubBlock, out);
        out.complete(kSubBlock, 1);
      });
    });
  }
};

// The scales of IQ2_XS and IQ2_S: sixteen nibbles.
template <typename Out>
inline void decode_odd_nibble_scales(const StoredRows& rows, size_t offset, Floats d, Out& out) {
  const Ints words[2] = {rows.word(offset), rows.word(offset + 4)};
  unrolled<16>([&]<int kSubBlock>() {
    out.scale(kSubBlock, multiply(d, odd(moved_bits<4 * (kSubBlock % 8), 4, 0>(words[kSubBlock / 8]))));
  });
}

struct PanelIQ2_XS {
  using Block = quant::BlockIQ2_XS;
  static constexpr int kElements = 256, kSub = 16, kZeroShift = 1;
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = multiply(low_halves(rows.word(0)), broadcast(0.125f));
    decode_odd_nibble_scales(rows, offsetof(Block, scales), d, out);
    unrolled<4>([&]<int kQuarter>() {
      Ints words[4];
      rows.words16(offsetof(Block, quants) + 16 * kQuarter, words);
      unrolled<2>([&]<int kHalf>() {  // 32 elements: two words of two codes, each with seven signs above it
        const Ints first = words[2 * kHalf], second = words[2 * kHalf + 1];
        const Ints low = bit_or(moved_bits<9, 7, 0>(first), moved_bits<25, 7, 8>(first));
        const Ints high = bit_or(moved_bits<9, 7, 16>(second), moved_bits<25, 7, 24>(second));
        const Ints signs = with_eighth_signs(bit_or(low, high));
        constexpr int kWord = 16 * kQuarter + 8 * kHalf;
        const uint64_t* table = kCodebookTables.iq2_xs.data();
        const Ints mask = broadcast_int(0x01ff01ff);
        two_eights<0, 1>(table, bit_and(first, mask), signs, kWord, out);
        two_eights<2, 3>(table, bit_and(second, mask), signs, kWord, out);
        out.complete(kWord / 4, 2);
      });
    });
  }
};

struct PanelIQ2_S {
  using Block = quant::BlockIQ2_S;
  static constexpr int kElements = 256, kSub = 16, kZeroShift = 1;
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = multiply(low_halves(rows.word(0)), broadcast(0.125f));
    decode_odd_nibble_scales(rows, offsetof(Block, scales), d, out);
    unrolled<2>([&]<int kHalf>() {
      Ints codes[4], signs[4];
      rows.words16(offsetof(Block, quants) + 16 * kHalf, codes);
      rows.words16(offsetof(Block, signs) + 16 * kHalf, signs);
      const Ints high = rows.word(offsetof(Block, high) + 4 * kHalf);
      unrolled<4>([&]<int kWord>() {
        const uint64_t* table = kCodebookTables.iq2_s.data();
        constexpr int kBit = 8 * kWord, kFirst = 32 * kHalf + 8 * kWord;
        const Ints even = bit_or(moved_bits<kBit, 2, 8>(high), moved_bits<kBit + 4, 2, 24>(high));
        const Ints odd = bit_or(moved_bits<kBit + 2, 2, 8>(high), moved_bits<kBit + 6, 2, 24>(high));
        two_eights<0, 2>(table, bit_or(even_codes(codes[kWord]), even), signs[kWord], kFirst, out);
        two_eights<1, 3>(table, bit_or(odd_codes(codes[kWord]), odd), signs[kWord], kFirst, out);
        out.complete(8 * kHalf + 2 * kWord, 2);
      });
    });
  }
};

// A codebook in both its forms.
template <int kSize>
struct Codebook {
  static constexpr int kEntries = kSize;
  const uint32_t* bytes;
  const uint16_t* levels;
};

// The four bytes of an entry in the half of each lane that begins at bit kFrom; three bits are a level.
template <int kFrom>
inline Ints bytes_of_three_bits(Ints levels, const ByteTable& bytes) {
  const Ints four = kFrom == 0 ? bit_and(levels, broadcast_int(0xffff)) : shift_right<16>(levels);
  const Ints even = bit_or(bit_and(four, broadcast_int(7)), bit_and(shift_left<10>(four), broadcast_int(7 << 16)));
  const Ints odd = bit_or(bit_and(shift_left<5>(four), broadcast_int(7 << 8)),
                          bit_and(shift_left<15>(four), broadcast_int(7 << 24)));
  return lookup(bytes.entries, bit_or(even, odd));
}

// Words kLow and kHigh of the 32 elements from word `first` on, of IQ3, whose codes are the halves of each lane.
template <int kLow, int kHigh, int kZero, typename Out>
inline void two_fours(const auto& codebook, const ByteTable& bytes, Ints codes, Ints signs, int first, Out& out) {
  const Ints twice_zero = repeat_byte(2 * kZero);
  if constexpr (kPermutesWords) {
    const Ints levels = lookup_levels<std::remove_cvref_t<decltype(codebook)>::kEntries>(codebook.levels, codes);
    out.word(first + kLow, mirrored<kLow>(bytes_of_three_bits<0>(levels, bytes), signs, twice_zero));
    out.word(first + kHigh, mirrored<kHigh>(bytes_of_three_bits<16>(levels, bytes), signs, twice_zero));
  } else {
    const Ints low = lookup_words(codebook.bytes, bit_and(codes, broadcast_int(0xffff)));
    const Ints high = lookup_words(codebook.bytes, shift_right<16>(codes));
    out.word(first + kLow, mirrored<kLow>(low, signs, twice_zero));
    out.word(first + kHigh, mirrored<kHigh>(high, signs, twice_zero));
  }
}

constexpr ByteTable around_zero(const uint8_t (&values)[8], int zero) {
  ByteTable table{};
  for (int i = 0; i < 8; ++i) table.entries[i] = static_cast<int8_t>(zero + values[i]);
  return table;
}

struct PanelIQ3_XXS {
  using Block = quant::BlockIQ3_XXS;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 1;  // zero = 64
  static constexpr bool kWide = false, kAffine = false;
  static constexpr ByteTable kBytes = around_zero(quant::kIq3XxsValues, kIq3XxsZero);

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = multiply(low_halves(rows.word(0)), broadcast(0.25f));
    unrolled<2>([&]<int kHalf>() {
      Ints codes[8], packed[4];
      rows.words32(offsetof(Block, quants) + 32 * kHalf, codes);
      rows.words16(offsetof(Block, signs) + 16 * kHalf, packed);
      unrolled<4>([&]<int kWord>() {
        constexpr int kSubBlock = 4 * kHalf + kWord;
        out.scale(kSubBlock, multiply(d, odd(shift_right<28>(packed[kWord]))));
        const Ints signs = signs_of_28_bits(packed[kWord]);
        const Codebook<256> codebook = {kCodebookTables.iq3_xxs.data(), kLevelTables.iq3_xxs.data()};
        constexpr int kZero = kIq3XxsZero, kFirst = 8 * kSubBlock;
        const Ints low = codes[2 * kWord], high = codes[2 * kWord + 1];
        two_fours<0, 2, kZero>(codebook, kBytes, even_codes(low), signs, kFirst, out);
        two_fours<1, 3, kZero>(codebook, kBytes, odd_codes(low), signs, kFirst, out);
        two_fours<4, 6, kZero>(codebook, kBytes, even_codes(high), signs, kFirst, out);
        two_fours<5, 7, kZero>(codebook, kBytes, odd_codes(high), signs, kFirst, out);
        out.complete(kSubBlock, 1);
      });
    });
  }
};

struct PanelIQ3_S {
  using Block = quant::BlockIQ3_S;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 3;  // zero = 16
  static constexpr bool kWide = false, kAffine = false;
  static constexpr ByteTable kBytes = around_zero(quant::kIq3SValues, kIq3SZero);

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = low_halves(rows.word(0));
    const Ints scales = rows.word(offsetof(Block, scales));
    unrolled<2>([&]<int kHalf>() {
      Ints codes[8], signs[4];
      rows.words32(offsetof(Block, quants) + 32 * kHalf, codes);
      rows.words16(offsetof(Block, signs) + 16 * kHalf, signs);
      const Ints high = rows.word(offsetof(Block, high) + 4 * kHalf);
      unrolled<4>([&]<int kWord>() {
        constexpr int kSubBlock = 4 * kHalf + kWord;
        out.scale(kSubBlock, multiply(d, odd(moved_bits<4 * kSubBlock, 4, 0>(scales))));
        const Codebook<512> codebook = {kCodebookTables.iq3_s.data(), kLevelTables.iq3_s.data()};
        constexpr int kZero = kIq3SZero, kFirst = 8 * kSubBlock, kBit = 8 * kWord;
        const auto ninth = [&]<int kLow, int kHigh>() {
          return bit_or(moved_bits<kBit + kLow, 1, 8>(high), moved_bits<kBit + kHigh, 1, 24>(high));
        };
        const Ints near = codes[2 * kWord], far = codes[2 * kWord + 1], sign = signs[kWord];
        const Ints codes02 = bit_or(even_codes(near), ninth.template operator()<0, 2>());
        const Ints codes13 = bit_or(odd_codes(near), ninth.template operator()<1, 3>());
        const Ints codes46 = bit_or(even_codes(far), ninth.template operator()<4, 6>());
        const Ints codes57 = bit_or(odd_codes(far), ninth.template operator()<5, 7>());
        two_fours<0, 2, kZero>(codebook, kBytes, codes02, sign, kFirst, out);
        two_fours<1, 3, kZero>(codebook, kBytes, codes13, sign, kFirst, out);
        two_fours<4, 6, kZero>(codebook, kBytes, codes46, sign, kFirst, out);
        two_fours<5, 7, kZero>(codebook, kBytes, codes57, sign, kFirst, out);
        out.complete(kSubBlock, 1);
      });
    });
  }
};

// Eight elements of IQ1: `shift` has in every byte what is added to the looked-up ones.
template <typename Out>
inline void shifted_eight(Ints code, Ints shift, int word, Out& out) {
  Ints pair[2];
  lookup_pairs(kCodebookTables.iq1.data(), code, pair);
  out.word(word, add(pair[0], shift));
  out.word(word + 1, add(pair[1], shift));
}

// In every byte `up`, or `down` where bit kBit is set.
template <int kBit>
inline Ints byte_shift(Ints v, int up, int down) {
  const Ints set = shift_right_signed<31>(shift_left<31 - kBit>(v));
  return bit_xor(repeat_byte(up), bit_and(set, repeat_byte(up ^ down)));
}

struct PanelIQ1_S {
  using Block = quant::BlockIQ1_S;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 3;  // zero = 16
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Floats d = multiply(low_halves(rows.word(0)), broadcast(0.125f));
    Ints codes[8], high[4];
    rows.words32(offsetof(Block, quants), codes);
    rows.words16(offsetof(Block, high), high);
    unrolled<8>([&]<int kSubBlock>() {
      constexpr int kBit = 16 * (kSubBlock % 2);
      const Ints bits = high[kSubBlock / 2];
      out.scale(kSubBlock, multiply(d, odd(moved_bits<kBit + 12, 3, 0>(bits))));
      // 1 is added to every byte, or subtracted, which makes them 7 to 25.
      const Ints up = repeat_byte(1), set = shift_right_signed<31>(shift_left<16 - kBit>(bits));
      const Ints shift = subtract(bit_xor(up, set), set);
      unrolled<4>([&]<int kGroup>() {
        const Ints code = bit_or(byte_of<kGroup>(codes[kSubBlock]), moved_bits<kBit + 3 * kGroup, 3, 8>(bits));
        shifted_eight(code, shift, 8 * kSubBlock + 2 * kGroup, out);
      });
      out.complete(kSubBlock, 1);
    });
  }
};

struct PanelIQ1_M {
  using Block = quant::BlockIQ1_M;
  static constexpr int kElements = 256, kSub = 16, kZeroShift = 2;  // zero = 32
  static constexpr bool kWide = false, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Ints scales[2] = {rows.word(offsetof(Block, scales)), rows.word(offsetof(Block, scales) + 4)};
    const Ints low = bit_or(moved_bits<12, 4, 0>(scales[0]), moved_bits<28, 4, 4>(scales[0]));
    const Ints top = bit_or(moved_bits<12, 4, 8>(scales[1]), moved_bits<28, 4, 12>(scales[1]));
    const Floats d = multiply(low_halves(bit_or(low, top)), broadcast(0.125f));
    unrolled<16>([&]<int kSubBlock>() {
      constexpr int kBit = 16 * (kSubBlock / 4 % 2) + 3 * (kSubBlock % 4);
      out.scale(kSubBlock, multiply(d, odd(moved_bits<kBit, 3, 0>(scales[kSubBlock / 8]))));
    });
    Ints codes[8], high[4];
    rows.words32(offsetof(Block, quants), codes);
    rows.words16(offsetof(Block, high), high);
    unrolled<8>([&]<int kWord>() {
      const Ints bits = high[kWord / 2];
      unrolled<4>([&]<int kGroup>() {
        constexpr int kBit = 16 * (kWord % 2) + 4 * kGroup;
        const Ints code = bit_or(byte_of<kGroup>(codes[kWord]), moved_bits<kBit, 3, 8>(bits));
        shifted_eight(code, byte_shift<kBit + 3>(bits, 16 + 1, 16 - 1), 8 * kWord + 2 * kGroup, out);
      });
      out.complete(2 * kWord, 2);
    });
  }
};

struct PanelIQ4_XS {
  using Block = quant::BlockIQ4_XS;
  static constexpr int kElements = 256, kSub = 32, kZeroShift = 0;
  static constexpr bool kWide = true, kAffine = false;

  template <typename Out>
  static void decode(StoredRows& rows, Out& out) {
    const Ints head = rows.word(0), scales = rows.word(offsetof(Block, scales_low));
    const Floats d = low_halves(head);
    unrolled<8>([&]<int kSubBlock>() {
      const Ints low = moved_bits<4 * kSubBlock, 4, 0>(scales);
      const Ints scale = bit_or(low, moved_bits<16 + 2 * kSubBlock, 2, 4>(head));
      out.scale(kSubBlock, multiply(d, to_floats(subtract(scale, broadcast_int(32)))));
      Ints words[4];
      rows.words16(offsetof(Block, quants) + 16 * kSubBlock, words);
      unrolled<4>([&]<int kWord>() {
        out.word(8 * kSubBlock + kWord, lookup(PanelIQ4_NL::kTable.entries, low_nibbles(words[kWord])));
        out.word(8 * kSubBlock + 4 + kWord, lookup(PanelIQ4_NL::kTable.entries, high_nibbles(words[kWord])));
      });
      out.complete(kSubBlock, 1);
    });
  }
};

}  // namespace
}  // namespace carat::exec::cpu
