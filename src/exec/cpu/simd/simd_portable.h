#pragma once

// Vectors for any machine: four lanes in the compiler's generic vector types. This is also the description of what the
// functions of simd_avx2.h and simd_avx512.h do; the generic kernels are written in these words.

#include <cstddef>
#include <cstdint>

#include "exec/cpu/kernel_table.h"

namespace carat::exec::cpu {
namespace {

typedef int32_t Ints __attribute__((vector_size(16)));
typedef uint32_t Words __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));
constexpr int kLanes = 4;  // weight rows side by side
// A tile of weight rows, by the first of every four.
struct RowPointers {
  const uint8_t* quads[kLanes / 4];
  size_t stride;
};
constexpr int kTileRows = 4;   // activation rows of a tile
constexpr int kScoreRows = 2;  // queries whose scores are computed together
// Weights that use all 8 bits are stored as signed bytes here (dot_wide), as unsigned ones with 128 added elsewhere.
constexpr bool kWideIsUnsigned = false;
constexpr Int16Layout kInt16Layout = Int16Layout::kPairs;
// Whether lookup_levels() looks up codes by permuting words; without it they are looked up one by one.
constexpr bool kPermutesWords = false;

inline Ints load_ints(const void* p) {
  Ints v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store_ints(void* p, Ints v) { __builtin_memcpy(p, &v, sizeof v); }
inline Ints broadcast_int(int32_t v) { return Ints{v, v, v, v}; }
// The four bytes at p in every lane.
inline Ints broadcast_bytes(const void* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return broadcast_int(v);
}
inline Ints bit_and(Ints a, Ints b) { return a & b; }
inline Ints bit_or(Ints a, Ints b) { return a | b; }
inline Ints bit_xor(Ints a, Ints b) { return a ^ b; }
template <int kBits>
inline Ints shift_left(Ints a) {
  return (Ints)((Words)a << kBits);
}
template <int kBits>
inline Ints shift_right(Ints a) {
  return (Ints)((Words)a >> kBits);
}
template <int kBits>
inline Ints shift_right_signed(Ints a) {
  return a >> kBits;
}
inline Ints add(Ints a, Ints b) { return a + b; }
inline Ints subtract(Ints a, Ints b) { return a - b; }
inline Ints largest(Ints a, Ints b) { return a > b ? a : b; }
inline int32_t reduce_add(Ints a) { return (a[0] + a[2]) + (a[1] + a[3]); }
inline int32_t reduce_max(Ints a) {
  const int32_t x = a[0] > a[2] ? a[0] : a[2];
  const int32_t y = a[1] > a[3] ? a[1] : a[3];
  return x > y ? x : y;
}

inline Floats load(const float* p) {
  Floats v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Floats v) { __builtin_memcpy(p, &v, sizeof v); }
inline Floats broadcast(float v) { return Floats{v, v, v, v}; }
inline Floats add(Floats a, Floats b) { return a + b; }
inline Floats subtract(Floats a, Floats b) { return a - b; }
inline Floats multiply(Floats a, Floats b) { return a * b; }
inline Floats divide(Floats a, Floats b) { return a / b; }
// a * b + c: rounded once where there is an instruction for it, twice here.
inline Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }
inline Floats largest(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smallest(Floats a, Floats b) { return a < b ? a : b; }
inline Floats select_less(Floats a, Floats b, Floats yes, Floats no) { return a < b ? yes : no; }
inline float reduce_add(Floats a) { return (a[0] + a[2]) + (a[1] + a[3]); }
inline float reduce_max(Floats a) {
  const float x = a[0] > a[2] ? a[0] : a[2];
  const float y = a[1] > a[3] ? a[1] : a[3];
  return x > y ? x : y;
}
inline Floats to_floats(Ints a) { return __builtin_convertvector(a, Floats); }
// To the nearest integer, ties to even, for values below 2^22: above, units of the last place are halves and the
// rounding of the addition does the work.
inline Ints round_to_ints(Floats a) {
  const Floats magic = broadcast(12582912.0f);  // 1.5 * 2^23
  return (Ints)(a + magic) - (Ints)magic;
}
inline Floats as_floats(Ints a) { return (Floats)a; }
inline Ints as_ints(Floats a) { return (Ints)a; }

// Sums of four vectors, into out[0..3].
inline void reduce_add4(Floats a, Floats b, Floats c, Floats d, float* out) {
  out[0] = reduce_add(a);
  out[1] = reduce_add(b);
  out[2] = reduce_add(c);
  out[3] = reduce_add(d);
}

inline float from_half(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  uint32_t out = sign;
  if (magnitude >= 0x7c00u) {  // infinity and NaN
    out |= 0x7f800000u | (magnitude & 0x3ffu) << 13;
  } else if (magnitude >= 0x400u) {
    out |= (magnitude << 13) + (112u << 23);
  } else {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    uint32_t small;
    __builtin_memcpy(&small, &value, 4);
    out |= small;
  }
  float value;
  __builtin_memcpy(&value, &out, 4);
  return value;
}

// Round to nearest even, as F16C does.
inline uint16_t to_half(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // a subnormal half: adding 0.5, whose last place is 2^-24, rounds for us
    float shifted;
    __builtin_memcpy(&shifted, &magnitude, 4);
    shifted += 0.5f;
    uint32_t rounded;
    __builtin_memcpy(&rounded, &shifted, 4);
    return static_cast<uint16_t>(sign | (rounded - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13);
}

inline Floats load_halves(const void* p) {
  uint16_t bits[kLanes];
  __builtin_memcpy(bits, p, sizeof bits);
  return Floats{from_half(bits[0]), from_half(bits[1]), from_half(bits[2]), from_half(bits[3])};
}
inline void store_halves(uint16_t* p, Floats v) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_half(v[i]);
}
inline Floats load_bfloats(const void* p) {
  uint16_t bits[kLanes];
  __builtin_memcpy(bits, p, sizeof bits);
  return (Floats)(Words{bits[0], bits[1], bits[2], bits[3]} << 16);
}
// The low 16 bits of each lane as a half.
inline Floats low_halves(Ints v) {
  const auto half = [&](int i) { return from_half(static_cast<uint32_t>(v[i]) & 0xffffu); };
  return Floats{half(0), half(1), half(2), half(3)};
}
// The lanes, each within -128..127, as kLanes bytes.
inline void store_bytes(int8_t* p, Ints v) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(v[i]);
}

// Lane r: the four bytes `offset` into row r.
inline Ints gather(const RowPointers& rows, size_t offset) {
  Ints v;
  for (int i = 0; i < kLanes; ++i) {
    int32_t word;
    __builtin_memcpy(&word, rows.quads[i / 4] + static_cast<size_t>(i % 4) * rows.stride + offset, 4);
    v[i] = word;
  }
  return v;
}

// Asks for a line of memory, not before v is computed: left to themselves compilers ask for everything first.
inline void prefetch_behind(Ints&, const uint8_t* line) { __builtin_prefetch(line, 0, 2); }

// Lane r of out[j]: bytes 4j .. 4j + 3 of the 16 bytes `offset` into row r.
__attribute__((always_inline)) inline void transpose_rows(const RowPointers& rows, size_t offset, Ints out[4]) {
  for (size_t j = 0; j < 4; ++j) out[j] = gather(rows, offset + 4 * j);
}

// sum + the four products of the bytes of each lane: unsigned weights of at most 7 bits, signed activations above -128.
inline Ints dot_narrow(Ints sum, Ints weights, Ints activations) {
  sum += (weights & 0xff) * ((Ints)((Words)activations << 24) >> 24);
  sum += (weights >> 8 & 0xff) * ((Ints)((Words)activations << 16) >> 24);
  sum += (weights >> 16 & 0xff) * ((Ints)((Words)activations << 8) >> 24);
  sum += (weights >> 24 & 0xff) * (activations >> 24);
  return sum;
}
// The same with weights of all 8 bits, stored as kWideIsUnsigned says.
inline Ints dot_wide(Ints sum, Ints weights, Ints activations) {
  sum += ((Ints)((Words)weights << 24) >> 24) * ((Ints)((Words)activations << 24) >> 24);
  sum += ((Ints)((Words)weights << 16) >> 24) * ((Ints)((Words)activations << 16) >> 24);
  sum += ((Ints)((Words)weights << 8) >> 24) * ((Ints)((Words)activations << 8) >> 24);
  sum += (weights >> 24) * (activations >> 24);
  return sum;
}

// Bytes 0 and 2 (or 1 and 3) of each lane as two 16-bit numbers.
template <bool kSigned>
inline Ints even_bytes(Ints v) {
  if (!kSigned) return v & 0x00ff00ff;
  const Ints first = ((Ints)((Words)v << 24) >> 24) & 0xffff;
  return first | (Ints)((Words)((Ints)((Words)v << 8) >> 24) << 16);
}
template <bool kSigned>
inline Ints odd_bytes(Ints v) {
  return even_bytes<kSigned>(shift_right<8>(v));
}
// sum + the two products of the 16-bit numbers of each lane.
inline Ints dot_pairs(Ints sum, Ints weights, Ints activations) {
  sum += ((Ints)((Words)weights << 16) >> 16) * ((Ints)((Words)activations << 16) >> 16);
  return sum + (weights >> 16) * (activations >> 16);
}

// Each byte (0..15) replaced by its entry in the table.
inline Ints lookup(const int8_t table[16], Ints nibbles) {
  uint8_t bytes[sizeof(Ints)];
  store_ints(bytes, nibbles);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(table[byte]);
  return load_ints(bytes);
}

// Bits 4 * kWord .. 4 * kWord + 3 of each lane, one to a byte, as 0x10.
template <int kWord>
inline Ints spread_bits(Ints bits) {
  const Words four = ((Words)bits >> (4 * kWord)) & 15u;
  return (Ints)(((four | four << 7 | four << 14 | four << 21) & 0x01010101u) << 4);
}

// Lane by lane the entry of a table.
inline Ints lookup_words(const uint32_t* table, Ints indices) {
  const auto entry = [&](int i) { return static_cast<int32_t>(table[indices[i]]); };
  return Ints{entry(0), entry(1), entry(2), entry(3)};
}
// The same with entries of 64 bits: the low words in out[0], the high ones in out[1].
inline void lookup_pairs(const uint64_t* table, Ints indices, Ints out[2]) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t entry = table[indices[i]];
    out[0][i] = static_cast<int32_t>(entry & 0xffffffffu);
    out[1][i] = static_cast<int32_t>(entry >> 32);
  }
}

// Bytes whose bit, one of the bits 4 * kWord .. 4 * kWord + 3 of the lane, is set become twice_zero - byte.
template <int kWord>
inline Ints mirrored(Ints bytes, Ints bits, Ints twice_zero) {
  const Ints mask = (Ints)((Words)spread_bits<kWord>(bits) >> 4) * 255;
  // Without a borrow between bytes: none is larger than twice_zero.
  return (bytes & ~mask) | ((twice_zero - bytes) & mask);
}

// Two codes in the halves of each lane, replaced by their entries; only where kPermutesWords.
template <int kEntries>
inline Ints lookup_levels(const uint16_t*, Ints codes) {
  return codes;
}

}  // namespace
}  // namespace carat::exec::cpu
