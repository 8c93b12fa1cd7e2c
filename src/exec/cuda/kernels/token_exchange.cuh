#pragma once

// Device code: how the blocks of the token kernel hand values to one another.
//
// Values are stored together with the number of the stage that made them, in one access that cannot be torn; the reader
// repeats its loads until the number is right. So a vector crosses the chip in one store and one load, without a
// barrier and without fences.
//
// A buffer may be written again once every block has published something it could only compute after reading the old
// contents; between two uses of each buffer lies at least one such stage.
//
// Four values of 24 bits (sign, exponent, 15 bits of mantissa) share a word with their tag. What reads them rounds to
// 15 bits per 16 values or to fp16 next, or adds them to something larger.
#include "exec/cuda/kernels/token.h"

namespace carat::cuda {

// Holds back the threads that compute; the warp that loads weights goes its own way.
__device__ __forceinline__ void token_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(kTokenThreads) : "memory"); }

// Functions that are calls of their own do not know where their pointers point; loads from shared memory are quicker
// where they do.
__device__ __forceinline__ void assume_shared(const void* p) { __builtin_assume(__isShared(p)); }

// Numbers of stages must differ between tokens too, or a token would take the values of the one before.
__device__ __forceinline__ uint32_t stage_tag(uint32_t serial, uint32_t stage) {
  return serial * kTokenMaxStages + stage;
}

__device__ __forceinline__ void publish_word(void* at, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}
__device__ __forceinline__ uint64_t load_word(const void* at) {
  uint64_t v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}

// A single value, exact.
__device__ __forceinline__ void publish(Tagged* at, float value, uint32_t tag) {
  publish_word(at, static_cast<uint64_t>(tag) << 32 | __float_as_uint(value));
}
__device__ __forceinline__ float await(const Tagged* at, uint32_t tag) {
  uint64_t word;
  do {
    word = load_word(at);
  } while (static_cast<uint32_t>(word >> 32) != tag);
  return __uint_as_float(static_cast<uint32_t>(word));
}

__device__ __forceinline__ uint32_t float_bits_24(float v) {
  const uint32_t bits = __float_as_uint(v);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return (bits + (finite ? 0x80u : 0u)) >> 8;
}

__device__ __forceinline__ void publish4(TaggedQuad* at, const float4& v, uint32_t tag) {
  const uint32_t a = float_bits_24(v.x), b = float_bits_24(v.y), c = float_bits_24(v.z), d = float_bits_24(v.w);
  const uint64_t low = static_cast<uint64_t>(b >> 8 | c << 16) << 32 | (a | b << 24);
  const uint64_t high = static_cast<uint64_t>(tag) << 32 | (c >> 16 | d << 8);
  asm volatile("{ .reg .b128 word; mov.b128 word, {%1, %2}; st.relaxed.gpu.global.b128 [%0], word; }" ::"l"(at),
               "l"(low), "l"(high)
               : "memory");
}

struct QuadWord {
  uint64_t low, high;
  __device__ bool has(uint32_t tag) const { return static_cast<uint32_t>(high >> 32) == tag; }
  __device__ float4 values() const {
    const auto a = static_cast<uint32_t>(low), b = static_cast<uint32_t>(low >> 32), c = static_cast<uint32_t>(high);
    return make_float4(__uint_as_float(a << 8), __uint_as_float((a >> 24) << 8 | b << 16),
                       __uint_as_float((b >> 16) << 8 | c << 24), __uint_as_float(c & 0xffffff00u));
  }
};
__device__ __forceinline__ QuadWord load4_tagged(const TaggedQuad* at) {
  QuadWord v;
  asm volatile("{ .reg .b128 word; ld.relaxed.gpu.global.b128 word, [%2]; mov.b128 {%0, %1}, word; }"
               : "=l"(v.low), "=l"(v.high)
               : "l"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ float4 await4(const TaggedQuad* at, uint32_t tag) {
  QuadWord word;
  do {
    word = load4_tagged(at);
  } while (!word.has(tag));
  return word.values();
}

// A word of a run: 12 of its bytes and the tag.
struct RunWord {
  uint32_t a, b, c, tag;
};
__device__ __forceinline__ RunWord load_run_word(const TaggedRun* at, uint32_t word) {
  uint64_t low, high;
  asm volatile("{ .reg .b128 word; ld.relaxed.gpu.global.b128 word, [%2]; mov.b128 {%0, %1}, word; }"
               : "=l"(low), "=l"(high)
               : "l"(at->words[word])
               : "memory");
  return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
          static_cast<uint32_t>(high >> 32)};
}
__device__ __forceinline__ void publish_run_word(TaggedRun* at, uint32_t word, uint32_t a, uint32_t b, uint32_t c,
                                                 uint32_t tag) {
  const uint64_t low = static_cast<uint64_t>(b) << 32 | a, high = static_cast<uint64_t>(tag) << 32 | c;
  asm volatile(
      "{ .reg .b128 word; mov.b128 word, {%1, %2}; st.relaxed.gpu.global.b128 [%0], word; }" ::"l"(at->words[word]),
      "l"(low), "l"(high)
      : "memory");
}

}  // namespace carat::cuda
