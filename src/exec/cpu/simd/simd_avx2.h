#pragma once

// Vectors of the AVX2 kernels (with FMA and F16C): 8 lanes. Everything is in an anonymous namespace because this code
// must not be shared with translation units of other instruction sets. simd_portable.h says what each function does.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "exec/cpu/kernel_table.h"
#include "exec/cpu/simd/simd_four_words.h"

namespace carat::exec::cpu {
namespace {

using Ints = __m256i;
using Floats = __m256;
constexpr int kLanes = 8;
struct RowPointers {
  const uint8_t* quads[kLanes / 4];
  size_t stride;
};
constexpr int kTileRows = 4;
constexpr int kScoreRows = 2;
constexpr bool kWideIsUnsigned = false;
constexpr Int16Layout kInt16Layout = Int16Layout::kPairs;
constexpr bool kPermutesWords = false;

inline Ints load_ints(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store_ints(void* p, Ints v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
inline Ints broadcast_int(int32_t v) { return _mm256_set1_epi32(v); }
inline Ints broadcast_bytes(const void* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
inline Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints bit_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
inline Ints bit_xor(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
template <int kBits>
inline Ints shift_left(Ints a) {
  return _mm256_slli_epi32(a, kBits);
}
template <int kBits>
inline Ints shift_right(Ints a) {
  return _mm256_srli_epi32(a, kBits);
}
template <int kBits>
inline Ints shift_right_signed(Ints a) {
  return _mm256_srai_epi32(a, kBits);
}
inline Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints subtract(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
inline Ints largest(Ints a, Ints b) { return _mm256_max_epi32(a, b); }
inline int32_t reduce_add(Ints a) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}
inline int32_t reduce_max(Ints a) {
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

inline Floats load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
inline Floats broadcast(float v) { return _mm256_set1_ps(v); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
inline Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats divide(Floats a, Floats b) { return _mm256_div_ps(a, b); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats largest(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Floats smallest(Floats a, Floats b) { return _mm256_min_ps(a, b); }
inline Floats select_less(Floats a, Floats b, Floats yes, Floats no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
inline float reduce_add(Floats a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  s = _mm_add_ss(s, _mm_shuffle_ps(s, s, 1));
  return _mm_cvtss_f32(s);
}
inline float reduce_max(Floats a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  s = _mm_max_ss(s, _mm_shuffle_ps(s, s, 1));
  return _mm_cvtss_f32(s);
}
inline Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
inline Ints round_to_ints(Floats a) { return _mm256_cvtps_epi32(a); }
inline Floats as_floats(Ints a) { return _mm256_castsi256_ps(a); }
inline Ints as_ints(Floats a) { return _mm256_castps_si256(a); }

inline void reduce_add4(Floats a, Floats b, Floats c, Floats d, float* out) {
  const Floats abcd = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}

inline Floats load_halves(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
inline void store_halves(uint16_t* p, Floats v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline Floats load_bfloats(const void* p) {
  const __m128i bits = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
// The low 16 bits of each lane, in 128 bits.
inline __m128i low_words(Ints v) {
  const Ints words = _mm256_packus_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)), _mm256_setzero_si256());
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(words, 0x08));
}
inline Floats low_halves(Ints v) { return _mm256_cvtph_ps(low_words(v)); }
inline void store_bytes(int8_t* p, Ints v) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}

__attribute__((always_inline)) inline Ints gather(const RowPointers& rows, size_t offset) {
  const auto four = [&](int quad) { return four_words(rows.quads[quad] + offset, rows.stride); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(four(0)), four(1), 1);
}

inline void prefetch_behind(Ints& v, const uint8_t* line) { asm volatile("prefetcht1 %1" : "+x"(v) : "m"(*line)); }

__attribute__((always_inline)) inline void transpose_rows(const RowPointers& rows, size_t offset, Ints out[4]) {
  // Rows i and i + 4 side by side; then a 4 x 4 transpose of 32-bit words within each half leaves the lanes in order.
  const auto two = [&](size_t i) {
    const auto row = [&](int quad) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.quads[quad] + i * rows.stride + offset));
    };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(row(0)), row(1), 1);
  };
  const Ints r0 = two(0), r1 = two(1), r2 = two(2), r3 = two(3);
  const Ints low01 = _mm256_unpacklo_epi32(r0, r1), high01 = _mm256_unpackhi_epi32(r0, r1);
  const Ints low23 = _mm256_unpacklo_epi32(r2, r3), high23 = _mm256_unpackhi_epi32(r2, r3);
  out[0] = _mm256_unpacklo_epi64(low01, low23);
  out[1] = _mm256_unpackhi_epi64(low01, low23);
  out[2] = _mm256_unpacklo_epi64(high01, high23);
  out[3] = _mm256_unpackhi_epi64(high01, high23);
}

// VPMADDUBSW adds two products in 16 bits: exact while weights are at most 128 and activations at most 127.
inline Ints dot_narrow(Ints sum, Ints weights, Ints activations) {
  const Ints pairs = _mm256_maddubs_epi16(weights, activations);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline Ints dot_wide(Ints sum, Ints weights, Ints activations) {
  return dot_narrow(sum, _mm256_abs_epi8(weights), _mm256_sign_epi8(activations, weights));
}

template <bool kSigned>
inline Ints even_bytes(Ints v) {
  return kSigned ? _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8) : _mm256_and_si256(v, _mm256_set1_epi32(0x00ff00ff));
}
template <bool kSigned>
inline Ints odd_bytes(Ints v) {
  return kSigned ? _mm256_srai_epi16(v, 8) : _mm256_srli_epi16(v, 8);
}
inline Ints dot_pairs(Ints sum, Ints weights, Ints activations) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(weights, activations));
}

inline Ints lookup(const int8_t table[16], Ints nibbles) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), nibbles);
}

template <int kWord>
inline Ints spread_bits(Ints bits) {
  constexpr int kByte = kWord / 2;
  const Ints replicate = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(kByte, kByte, kByte, kByte, kByte + 4, kByte + 4, kByte + 4, kByte + 4, kByte + 8, kByte + 8,
                    kByte + 8, kByte + 8, kByte + 12, kByte + 12, kByte + 12, kByte + 12));
  const Ints select = _mm256_set1_epi32(kWord % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
  const Ints chosen = _mm256_and_si256(_mm256_shuffle_epi8(bits, replicate), select);
  return _mm256_and_si256(_mm256_cmpeq_epi8(chosen, select), _mm256_set1_epi8(0x10));
}

// Entry by entry: gathering takes longer (simd_four_words.h). The indices pass through memory, from where they can be
// addresses at once.
__attribute__((always_inline)) inline Ints lookup_words(const uint32_t* table, Ints indices) {
  alignas(32) uint32_t at[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(at), indices);
  const auto four = [&](int i) {
    const __m128i two =
        _mm_insert_epi32(_mm_cvtsi32_si128(static_cast<int>(table[at[i]])), static_cast<int>(table[at[i + 1]]), 1);
    const __m128i three = _mm_insert_epi32(two, static_cast<int>(table[at[i + 2]]), 2);
    return _mm_insert_epi32(three, static_cast<int>(table[at[i + 3]]), 3);
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(four(0)), four(4), 1);
}
__attribute__((always_inline)) inline void lookup_pairs(const uint64_t* table, Ints indices, Ints out[2]) {
  alignas(32) uint32_t at[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(at), indices);
  const auto two = [&](int i) { return entries_of_two(table + at[i], table + at[i + 1]); };
  const Ints first = _mm256_inserti128_si256(_mm256_castsi128_si256(two(0)), two(4), 1);
  const Ints second = _mm256_inserti128_si256(_mm256_castsi128_si256(two(2)), two(6), 1);
  out[0] = as_ints(_mm256_shuffle_ps(as_floats(first), as_floats(second), 0x88));
  out[1] = as_ints(_mm256_shuffle_ps(as_floats(first), as_floats(second), 0xdd));
}

template <int kWord>
inline Ints mirrored(Ints bytes, Ints bits, Ints twice_zero) {
  constexpr int kByte = kWord / 2;
  const Ints replicate = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(kByte, kByte, kByte, kByte, kByte + 4, kByte + 4, kByte + 4, kByte + 4, kByte + 8, kByte + 8,
                    kByte + 8, kByte + 8, kByte + 12, kByte + 12, kByte + 12, kByte + 12));
  const Ints select = _mm256_set1_epi32(kWord % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
  const Ints chosen = _mm256_and_si256(_mm256_shuffle_epi8(bits, replicate), select);
  return _mm256_blendv_epi8(bytes, _mm256_sub_epi8(twice_zero, bytes), _mm256_cmpeq_epi8(chosen, select));
}

template <int kEntries>
inline Ints lookup_levels(const uint16_t*, Ints codes) {
  return codes;
}

}  // namespace
}  // namespace carat::exec::cpu
