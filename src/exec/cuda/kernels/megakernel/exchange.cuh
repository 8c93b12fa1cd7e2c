#pragma once

// Device code: how the blocks of the token kernel hand values to one another.
//
// Values are stored together with the version of their buffer, in one access that cannot be torn; the reader repeats
// its loads until the version is right. So a vector crosses the chip in one store and one load, without a barrier and
// without fences.
//
// A buffer may be written again once every block has published something it could only compute after reading the old
// contents; between two uses of each buffer lies at least one such stage.
//
// Most vectors travel as words of 24 bits of a value (sign, exponent, 15 bits of mantissa) and 8 bits of the version.
// What reads them rounds to 15 bits per 16 values or to fp16 next, or adds them to something larger. Every word of such
// a vector is written at least once a token, so that the word which is there before the awaited one is of one of the
// last kMegakernelVersions versions. What is not (a share of attention that only long caches have) carries all bits.
//
// The results of GEGLU, the longest vectors, travel as eights: q = round(v / 2^e) of 14 bits with one exponent for
// eight values, 16 bits each: q + 8192, and two bits that belong to the exponent (first four) or to the version (last
// four).
#include "exec/cuda/kernels/megakernel/megakernel.h"
#include "exec/cuda/kernels/ptx/megakernel.cuh"

namespace carat::cuda {

// Versions must differ between tokens too, or a token would take the values of the one before.
__device__ __forceinline__ uint32_t version_tag(uint32_t serial, uint32_t version) {
  return serial * kMegakernelVersions + version;
}

// A single value, exact.
__device__ __forceinline__ void publish(Tagged* at, float value, uint32_t tag) {
  store_word(at, static_cast<uint64_t>(tag) << 32 | __float_as_uint(value));
}
__device__ __forceinline__ float await(const Tagged* at, uint32_t tag) {
  uint64_t word;
  do {
    word = load_word(at);
  } while (static_cast<uint32_t>(word >> 32) != tag);
  return __uint_as_float(static_cast<uint32_t>(word));
}

// Rounded to its upper 24 bits; the others are anything.
__device__ __forceinline__ uint32_t rounded_24(float v) {
  const uint32_t bits = __float_as_uint(v);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return bits + (finite ? 0x80u : 0u);
}
__device__ __forceinline__ uint32_t tagged_word(float v, uint32_t tag) {
  return (rounded_24(v) & 0xffffff00u) | (tag & 0xffu);
}
__device__ __forceinline__ void publish(TaggedWord* at, float v, uint32_t tag) { store_word(at, tagged_word(v, tag)); }
__device__ __forceinline__ void publish4(TaggedWord* at, const float4& v, uint32_t tag) {
  store_words(at,
              make_uint4(tagged_word(v.x, tag), tagged_word(v.y, tag), tagged_word(v.z, tag), tagged_word(v.w, tag)));
}

struct FourWords {
  uint32_t a, b, c, d;
  __device__ bool have(uint32_t tag) const { return (((a ^ tag) | (b ^ tag) | (c ^ tag) | (d ^ tag)) & 0xffu) == 0; }
  __device__ float4 values() const {
    const auto value = [](uint32_t word) { return __uint_as_float(word & 0xffffff00u); };
    return make_float4(value(a), value(b), value(c), value(d));
  }
};
__device__ __forceinline__ FourWords load4_tagged(const TaggedWord* at) {
  const uint4 v = load_four_words(at);
  return {v.x, v.y, v.z, v.w};
}
// Before asking again: all blocks ask for the same few lines, and who still computes needs the same paths.
__device__ __forceinline__ void pause_before_asking() { __nanosleep(200); }

// `words`: what was there a moment ago.
__device__ __forceinline__ float4 await4(const TaggedWord* at, uint32_t tag, FourWords words) {
  while (!words.have(tag)) words = load4_tagged(at);
  return words.values();
}
__device__ __forceinline__ float await(const TaggedWord* at, uint32_t tag) {
  uint32_t word;
  do {
    word = load_word_4(at);
  } while (((word ^ tag) & 0xffu) != 0);
  return __uint_as_float(word & 0xffffff00u);
}

__device__ __forceinline__ void publish4(TaggedQuad* at, const float4& v, uint32_t tag) {
  const uint32_t a = rounded_24(v.x) >> 8, b = rounded_24(v.y) >> 8, c = rounded_24(v.z) >> 8, d = rounded_24(v.w) >> 8;
  const uint64_t low = static_cast<uint64_t>(b >> 8 | c << 16) << 32 | (a | b << 24);
  store_16(at, low, static_cast<uint64_t>(tag) << 32 | (c >> 16 | d << 8));
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
  load_16(at, v.low, v.high);
  return v;
}

// The exponent of eight values with this largest magnitude, as that of a float: of a fourth of q's unit. 255 where one
// is not finite, which makes all of them NaN.
__device__ __forceinline__ uint32_t eight_exponent(float largest) {
  const uint32_t exponent = __float_as_uint(largest) >> 23;
  return exponent == 255 ? 255 : max(exponent, 15u) - 14;
}
// The 16 bits of value `i`; `shared`: the byte of which it carries two.
__device__ __forceinline__ uint32_t eight_field(float v, uint32_t exponent, uint32_t shared, uint32_t i) {
  const float inverse = __uint_as_float((252 - min(exponent, 240u)) << 23);
  const int q = min(__float2int_rn(v * inverse), 8191);  // what rounds up to 8192 loses half a unit
  return static_cast<uint32_t>(q + 8192) << 2 | (shared >> i % 4 * 2 & 3);
}

struct EightWord {
  uint32_t words[4];
  static constexpr uint32_t kShared = 0x00030003u;  // bits that belong to no value
  __device__ void load(const TaggedEight* at) {
    uint64_t low, high;
    load_16(at, low, high);
    words[0] = static_cast<uint32_t>(low), words[1] = static_cast<uint32_t>(low >> 32);
    words[2] = static_cast<uint32_t>(high), words[3] = static_cast<uint32_t>(high >> 32);
  }
  __device__ bool has(uint32_t tag) const {
    const uint32_t low = (tag & 3) | (tag & 0xc) << 14, high = (tag >> 4 & 3) | (tag >> 4 & 0xc) << 14;
    return (((words[2] ^ low) | (words[3] ^ high)) & kShared) == 0;
  }
  // 8388608 + 4 (q + 8192) is a float whose lower bits are the field's; the rest is exact.
  __device__ void values(float (&v)[kMegakernelEight]) const {
    const uint32_t bits = (words[0] & kShared) | (words[1] & kShared) << 4;
    const float unit = __uint_as_float((bits | bits >> 14) << 23), zero = -(8388608.0f + 32768.0f) * unit;
#pragma unroll
    for (uint32_t i = 0; i < kMegakernelEight; ++i) {
      const uint32_t field = __byte_perm(words[i / 2] & ~kShared, 0x4b000000u, i % 2 == 0 ? 0x7410 : 0x7432);
      v[i] = fmaf(__uint_as_float(field), unit, zero);
    }
  }
};

}  // namespace carat::cuda
