#pragma once

// Vectors of the AVX-512 kernels (F, BW, DQ, VL and VNNI): 16 lanes. Everything is in an anonymous namespace because
// this code must not be shared with translation units of other instruction sets. simd_portable.h says what each
// function does.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "exec/cpu/kernel_table.h"
#include "exec/cpu/simd/simd_four_words.h"

namespace carat::exec::cpu {
namespace {

using Ints = __m512i;
using Floats = __m512;
constexpr int kLanes = 16;
struct RowPointers {
  const uint8_t* quads[kLanes / 4];
  size_t stride;
};
constexpr int kTileRows = 8;
constexpr int kScoreRows = 4;
// VPDPBUSD takes unsigned weights: full-range formats are stored with 128 added.
constexpr bool kWideIsUnsigned = true;
// A dot of bytes costs what a dot of half as many 16-bit numbers does, so there is nothing to gain from widening.
constexpr Int16Layout kInt16Layout = Int16Layout::kPlanes;
constexpr bool kPermutesWords = true;

inline Ints load_ints(const void* p) { return _mm512_loadu_si512(p); }
inline void store_ints(void* p, Ints v) { _mm512_storeu_si512(p, v); }
inline Ints broadcast_int(int32_t v) { return _mm512_set1_epi32(v); }
inline Ints broadcast_bytes(const void* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
inline Ints bit_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints bit_or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline Ints bit_xor(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
template <int kBits>
inline Ints shift_left(Ints a) {
  return _mm512_slli_epi32(a, kBits);
}
template <int kBits>
inline Ints shift_right(Ints a) {
  return _mm512_srli_epi32(a, kBits);
}
template <int kBits>
inline Ints shift_right_signed(Ints a) {
  return _mm512_srai_epi32(a, kBits);
}
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints subtract(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Ints largest(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
inline int32_t reduce_add(Ints a) { return _mm512_reduce_add_epi32(a); }
inline int32_t reduce_max(Ints a) { return _mm512_reduce_max_epi32(a); }

inline Floats load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline Floats broadcast(float v) { return _mm512_set1_ps(v); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats largest(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats smallest(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats select_less(Floats a, Floats b, Floats yes, Floats no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
inline float reduce_add(Floats a) { return _mm512_reduce_add_ps(a); }
inline float reduce_max(Floats a) { return _mm512_reduce_max_ps(a); }
inline Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
inline Ints round_to_ints(Floats a) { return _mm512_cvtps_epi32(a); }
inline Floats as_floats(Ints a) { return _mm512_castsi512_ps(a); }
inline Ints as_ints(Floats a) { return _mm512_castps_si512(a); }

// Sums of four vectors, into out[0..3].
inline void reduce_add4(Floats a, Floats b, Floats c, Floats d, float* out) {
  const Floats ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const Floats cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const Floats even = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
  const Floats odd = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
  const Floats abcd = _mm512_add_ps(even, odd);
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

inline Floats load_halves(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
inline void store_halves(uint16_t* p, Floats v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline Floats load_bfloats(const void* p) {
  const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Floats low_halves(Ints v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
inline void store_bytes(int8_t* p, Ints v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v)); }

__attribute__((always_inline)) inline Ints gather(const RowPointers& rows, size_t offset) {
  const auto four = [&](int quad) { return four_words(rows.quads[quad] + offset, rows.stride); };
  Ints v = _mm512_castsi128_si512(four(0));
  v = _mm512_inserti32x4(v, four(1), 1);
  v = _mm512_inserti32x4(v, four(2), 2);
  return _mm512_inserti32x4(v, four(3), 3);
}

inline void prefetch_behind(Ints& v, const uint8_t* line) { asm volatile("prefetcht1 %1" : "+v"(v) : "m"(*line)); }

__attribute__((always_inline)) inline void transpose_rows(const RowPointers& rows, size_t offset, Ints out[4]) {
  // Rows i, i + 4, i + 8, i + 12 side by side; then a 4 x 4 transpose of 32-bit words within each 128-bit lane leaves
  // the lanes in row order.
  const auto four = [&](size_t i) {
    const auto row = [&](int quad) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.quads[quad] + i * rows.stride + offset));
    };
    Ints v = _mm512_castsi128_si512(row(0));
    v = _mm512_inserti32x4(v, row(1), 1);
    v = _mm512_inserti32x4(v, row(2), 2);
    return _mm512_inserti32x4(v, row(3), 3);
  };
  const Ints r0 = four(0), r1 = four(1), r2 = four(2), r3 = four(3);
  const Ints low01 = _mm512_unpacklo_epi32(r0, r1), high01 = _mm512_unpackhi_epi32(r0, r1);
  const Ints low23 = _mm512_unpacklo_epi32(r2, r3), high23 = _mm512_unpackhi_epi32(r2, r3);
  out[0] = _mm512_unpacklo_epi64(low01, low23);
  out[1] = _mm512_unpackhi_epi64(low01, low23);
  out[2] = _mm512_unpacklo_epi64(high01, high23);
  out[3] = _mm512_unpackhi_epi64(high01, high23);
}

inline Ints dot_narrow(Ints sum, Ints weights, Ints activations) {
  return _mm512_dpbusd_epi32(sum, weights, activations);
}
inline Ints dot_wide(Ints sum, Ints weights, Ints activations) { return dot_narrow(sum, weights, activations); }

template <bool kSigned>
inline Ints even_bytes(Ints v) {
  return kSigned ? _mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8) : _mm512_and_si512(v, _mm512_set1_epi32(0x00ff00ff));
}
template <bool kSigned>
inline Ints odd_bytes(Ints v) {
  return kSigned ? _mm512_srai_epi16(v, 8) : _mm512_srli_epi16(v, 8);
}
inline Ints dot_pairs(Ints sum, Ints weights, Ints activations) {
  return _mm512_dpwssd_epi32(sum, weights, activations);
}

inline Ints lookup(const int8_t table[16], Ints nibbles) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), nibbles);
}

template <int kWord>
inline Ints spread_bits(Ints bits) {
  constexpr int kByte = kWord / 2;
  const Ints replicate = _mm512_broadcast_i32x4(
      _mm_setr_epi8(kByte, kByte, kByte, kByte, kByte + 4, kByte + 4, kByte + 4, kByte + 4, kByte + 8, kByte + 8,
                    kByte + 8, kByte + 8, kByte + 12, kByte + 12, kByte + 12, kByte + 12));
  const Ints select = _mm512_set1_epi32(kWord % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
  const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits, replicate), select);
  return _mm512_maskz_mov_epi8(set, _mm512_set1_epi8(0x10));
}

// Entry by entry: gathering takes longer (simd_four_words.h). The indices pass through memory, from where they can be
// addresses at once.
__attribute__((always_inline)) inline Ints lookup_words(const uint32_t* table, Ints indices) {
  alignas(64) uint32_t at[kLanes];
  _mm512_store_si512(at, indices);
  const auto four = [&](int i) {
    const __m128i two =
        _mm_insert_epi32(_mm_cvtsi32_si128(static_cast<int>(table[at[i]])), static_cast<int>(table[at[i + 1]]), 1);
    const __m128i three = _mm_insert_epi32(two, static_cast<int>(table[at[i + 2]]), 2);
    return _mm_insert_epi32(three, static_cast<int>(table[at[i + 3]]), 3);
  };
  Ints v = _mm512_castsi128_si512(four(0));
  v = _mm512_inserti32x4(v, four(4), 1);
  v = _mm512_inserti32x4(v, four(8), 2);
  return _mm512_inserti32x4(v, four(12), 3);
}
__attribute__((always_inline)) inline void lookup_pairs(const uint64_t* table, Ints indices, Ints out[2]) {
  alignas(64) uint32_t at[kLanes];
  _mm512_store_si512(at, indices);
  // Lanes 0, 1, 4, 5, ... and 2, 3, 6, 7, ...: the shuffle that parts low from high words puts them in order.
  const auto eight = [&](int i) {
    const auto two = [&](int j) { return entries_of_two(table + at[j], table + at[j + 1]); };
    Ints v = _mm512_castsi128_si512(two(i));
    v = _mm512_inserti32x4(v, two(i + 4), 1);
    v = _mm512_inserti32x4(v, two(i + 8), 2);
    return _mm512_inserti32x4(v, two(i + 12), 3);
  };
  const Floats first = as_floats(eight(0)), second = as_floats(eight(2));
  out[0] = as_ints(_mm512_shuffle_ps(first, second, 0x88));
  out[1] = as_ints(_mm512_shuffle_ps(first, second, 0xdd));
}

template <int kWord>
inline Ints mirrored(Ints bytes, Ints bits, Ints twice_zero) {
  constexpr int kByte = kWord / 2;
  const Ints replicate = _mm512_broadcast_i32x4(
      _mm_setr_epi8(kByte, kByte, kByte, kByte, kByte + 4, kByte + 4, kByte + 4, kByte + 4, kByte + 8, kByte + 8,
                    kByte + 8, kByte + 8, kByte + 12, kByte + 12, kByte + 12, kByte + 12));
  const Ints select = _mm512_set1_epi32(kWord % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
  const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits, replicate), select);
  return _mm512_mask_sub_epi8(bytes, set, twice_zero, bytes);
}

// A permutation of words reaches 64 entries; among the results of several the upper bits of the code choose.
template <int kEntries>
__attribute__((always_inline)) inline Ints lookup_levels(const uint16_t* table, Ints codes) {
  if constexpr (kEntries == 64) {
    return _mm512_permutex2var_epi16(_mm512_load_si512(table), codes, _mm512_load_si512(table + 32));
  } else {
    const Ints low = lookup_levels<kEntries / 2>(table, codes);
    const Ints high = lookup_levels<kEntries / 2>(table + kEntries / 2, codes);
    const __mmask32 upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(kEntries / 2));
    return _mm512_mask_blend_epi16(upper, low, high);
  }
}

}  // namespace
}  // namespace carat::exec::cpu
