#pragma once

// Included by simd_avx2.h and simd_avx512.h, in translation units of one instruction set each.

#include <smmintrin.h>

#include <cstddef>
#include <cstdint>

namespace carat::exec::cpu {
namespace {

// The four bytes at `row` and at three more rows, `stride` apart. Word by word: the instruction that gathers takes
// twice as long on Zen 4, and longer still on Intel's processors since their microcode keeps it from leaking.
__attribute__((always_inline)) inline __m128i four_words(const uint8_t* row, size_t stride) {
  const auto word = [&](size_t index) {
    int32_t v;
    __builtin_memcpy(&v, row + index * stride, 4);
    return v;
  };
  const __m128i two = _mm_insert_epi32(_mm_cvtsi32_si128(word(0)), word(1), 1);
  return _mm_insert_epi32(_mm_insert_epi32(two, word(2), 2), word(3), 3);
}

// Two entries of 64 bits.
__attribute__((always_inline)) inline __m128i entries_of_two(const uint64_t* first, const uint64_t* second) {
  const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(first));
  return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(low), reinterpret_cast<const __m64*>(second)));
}

}  // namespace
}  // namespace carat::exec::cpu
