#pragma once

// Device code: how the blocks of the token kernel hand values to one another.
//
// Values are stored together with the number of the stage that made them, in one access that cannot be torn; the reader
// repeats its loads until the number is right. So a vector crosses the chip in one store and one load, without a
// barrier and without fences. If all threads polled for what they need, their loads alone would keep the L2 cache busy,
// so a gate comes first: one thread per block of the producers polls for the last of its records.
//
// A buffer may be written again once every block has published something it could only compute after reading the old
// contents; between two uses of each buffer lies at least one such stage.
//
// Four values of 24 bits (sign, exponent, 15 bits of mantissa) share a word with their tag. What reads them rounds to
// 15 bits per 16 values or to fp16 next, or adds them to something larger.
#include "exec/cuda/kernels/token.h"

namespace carat::cuda {

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

// Two values of 24 bits and 16 bits of tag, the results of one row group of GEGLU.
__device__ __forceinline__ void publish_pair(uint64_t* at, float first, float second, uint32_t tag) {
  publish_word(at, static_cast<uint64_t>(tag & 0xffffu) << 48 | static_cast<uint64_t>(float_bits_24(second)) << 24 |
                       float_bits_24(first));
}
__device__ __forceinline__ bool pair_has_tag(uint64_t word, uint32_t tag) {
  return static_cast<uint32_t>(word >> 48) == (tag & 0xffffu);
}
__device__ __forceinline__ float2 pair_values(uint64_t word) {
  return make_float2(__uint_as_float(static_cast<uint32_t>(word) << 8),
                     __uint_as_float(static_cast<uint32_t>(word >> 24) << 8));
}
// Two neighbouring pairs; each word on its own cannot be torn.
__device__ __forceinline__ ulonglong2 load_pairs(const uint64_t* at) {
  ulonglong2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(at) : "memory");
  return v;
}

// Waits until the last of the records that each block has of `count` (dealt out as row groups are) is there. Others may
// still be on their way: readers check every tag. The caller's next barrier holds the block back until then.
template <typename Ready>
__device__ __forceinline__ void wait_at_gate(uint32_t count, const Ready& ready) {
  if (threadIdx.x >= gridDim.x) return;
  const uint32_t end = count * (threadIdx.x + 1) / gridDim.x;
  if (end == count * threadIdx.x / gridDim.x) return;
  while (!ready(end - 1)) {
  }
}
__device__ __forceinline__ void wait_for_quads(const TaggedQuad* from, uint32_t count, uint32_t tag) {
  wait_at_gate(count, [&](uint32_t i) { return load4_tagged(from + i).has(tag); });
}

}  // namespace carat::cuda
