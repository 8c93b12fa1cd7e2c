#pragma once

// Device code: for each packing, what a lane loads of a weight row and the fp16 operands it makes of it.
//
// A step of 256 columns is 8 chunks of 8 columns for each of the 4 lanes t that share a row (skinny_rows.h); a piece is
// what is loaded together, kChunks of them. Quants become exact integers in fp16 by setting the exponent of 1024 over
// them and subtracting it again; one multiplication (or one fused with the minimum) then rounds the weight to fp16:
// 2^-12 of its size at most, an eighth of what bf16 loses.
#include "exec/cuda/kernels/gemv/packings.cuh"

namespace carat::cuda {

__device__ __forceinline__ __half2 as_half2(uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); }
__device__ __forceinline__ uint32_t as_bits(__half2 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }

inline constexpr uint32_t kHalf1024 = 0x64006400u;

// Columns 0, 2 (low) or 1, 3 (high) of four nibbles in the low half of each byte, as 1024 + nibble.
__device__ __forceinline__ uint32_t nibble_pair(uint32_t word, bool odd) {
  return ((odd ? word >> 8 : word) & 0x000f000fu) | kHalf1024;
}

__device__ __forceinline__ const uint32_t& word_of(const uint4& v, int index) {
  return index == 0 ? v.x : index == 1 ? v.y : index == 2 ? v.z : v.w;
}

// Each: load() fetches piece `piece` of step `cell` (= row * steps + step); chunk() gives the operands of chunk c of
// the piece: columns (0, 2), (1, 3), (4, 6), (5, 7).
struct FragmentsQ8 {
  static constexpr int kChunks = 4;
  struct Regs {
    uint4 low, high;
    __half d;
  };
  struct Source {
    const uint4* quants;
    const __half* scales;
  };
  static __device__ __forceinline__ Source source(const PackedView& w, uint64_t cell, uint32_t t) {
    return {static_cast<const uint4*>(w.quants) + cell * 16 + t, static_cast<const __half*>(w.scales) + cell * 8 + t};
  }
  static __device__ __forceinline__ void load(const Source& from, uint32_t step, uint32_t piece, Regs& r) {
    r.low = load_stream_16(from.quants + step * 16 + piece * 4);
    r.high = load_stream_16(from.quants + step * 16 + piece * 4 + 8);
    r.d = __ldg(from.scales + step * 8 + piece * 4);
  }
  static __device__ __forceinline__ void chunk(const Regs& r, int c, uint32_t (&f)[4]) {
    const uint4& half = c < 2 ? r.low : r.high;
    const __half2 d = __half2half2(r.d), offset = as_half2(0x64806480u);  // 1024 + 128
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = word_of(half, c % 2 * 2 + i) ^ 0x80808080u;
      f[2 * i] = as_bits(__hmul2(__hsub2(as_half2(__byte_perm(word, 0x64646464u, 0x4240)), offset), d));
      f[2 * i + 1] = as_bits(__hmul2(__hsub2(as_half2(__byte_perm(word, 0x64646464u, 0x4341)), offset), d));
    }
  }
};

// Nibbles of word i of chunk c: the chunks of a block's second half are in the high nibbles.
__device__ __forceinline__ uint32_t chunk_nibbles(const uint4& q, int c, int i) {
  const uint32_t word = word_of(q, c % 2 * 2 + i);
  return c < 2 ? word : word >> 4;
}

struct FragmentsQ4 {
  static constexpr int kChunks = 4;
  struct Regs {
    uint4 q;
    __half d;
  };
  struct Source {
    const uint4* quants;
    const __half* scales;
  };
  static __device__ __forceinline__ Source source(const PackedView& w, uint64_t cell, uint32_t t) {
    return {static_cast<const uint4*>(w.quants) + cell * 8 + t, static_cast<const __half*>(w.scales) + cell * 8 + t};
  }
  static __device__ __forceinline__ void load(const Source& from, uint32_t step, uint32_t piece, Regs& r) {
    r.q = load_stream_16(from.quants + step * 8 + piece * 4);
    r.d = __ldg(from.scales + step * 8 + piece * 4);
  }
  static __device__ __forceinline__ void chunk(const Regs& r, int c, uint32_t (&f)[4]) {
    const __half2 d = __half2half2(r.d), offset = as_half2(0x64086408u);  // 1024 + 8
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = chunk_nibbles(r.q, c, i);
      f[2 * i] = as_bits(__hmul2(__hsub2(as_half2(nibble_pair(word, false)), offset), d));
      f[2 * i + 1] = as_bits(__hmul2(__hsub2(as_half2(nibble_pair(word, true)), offset), d));
    }
  }
};

// scale * q - minimum, both rounded to fp16 once.
struct FragmentsQ4K {
  static constexpr int kChunks = 4;
  struct Regs {
    uint4 q;
    uint32_t d, high;  // of the header: d and dmin; the upper bits of all scales and minima
    uint8_t low;       // the lower nibbles of this block's
  };
  struct Source {
    const uint4* quants;
    const uint32_t* header;
    uint32_t t;
  };
  static __device__ __forceinline__ Source source(const PackedView& w, uint64_t cell, uint32_t t) {
    return {static_cast<const uint4*>(w.quants) + cell * 8 + t, static_cast<const uint32_t*>(w.scales) + cell * 4, t};
  }
  static __device__ __forceinline__ void load(const Source& from, uint32_t step, uint32_t piece, Regs& r) {
    r.q = load_stream_16(from.quants + step * 8 + piece * 4);
    const uint32_t* header = from.header + step * 4;
    r.d = __ldg(header);
    r.low = __ldg(reinterpret_cast<const uint8_t*>(header + 1) + piece * 4 + from.t);
    r.high = __ldg(header + 3) >> (4 * (piece * 4 + from.t));
  }
  static __device__ __forceinline__ void scales(uint32_t d_bits, uint32_t low, uint32_t high, __half2& scale,
                                                __half2& minus_minimum) {
    const __half2 d = as_half2(d_bits);
    scale = __float2half2_rn(__low2float(d) * static_cast<float>((low & 15u) | ((high & 3u) << 4)));
    minus_minimum = __float2half2_rn(-__high2float(d) * static_cast<float>((low >> 4) | ((high & 12u) << 2)));
  }
  static __device__ __forceinline__ void chunk(const Regs& r, int c, uint32_t (&f)[4]) {
    __half2 scale, minus_minimum;
    scales(r.d, r.low, r.high, scale, minus_minimum);
    const __half2 offset = as_half2(kHalf1024);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = chunk_nibbles(r.q, c, i);
      f[2 * i] = as_bits(__hfma2(__hsub2(as_half2(nibble_pair(word, false)), offset), scale, minus_minimum));
      f[2 * i + 1] = as_bits(__hfma2(__hsub2(as_half2(nibble_pair(word, true)), offset), scale, minus_minimum));
    }
  }
};

struct FragmentsQ5K {
  static constexpr int kChunks = 4;
  struct Regs {
    FragmentsQ4K::Regs base;
    uint32_t fifth;
  };
  struct Source {
    FragmentsQ4K::Source base;
    const uint32_t* fifth;
  };
  static __device__ __forceinline__ Source source(const PackedView& w, uint64_t cell, uint32_t t) {
    return {FragmentsQ4K::source(w, cell, t), static_cast<const uint32_t*>(w.high) + cell * 8 + t};
  }
  static __device__ __forceinline__ void load(const Source& from, uint32_t step, uint32_t piece, Regs& r) {
    FragmentsQ4K::load(from.base, step, piece, r.base);
    r.fifth = __ldg(from.fifth + step * 8 + piece * 4);
  }
  static __device__ __forceinline__ void chunk(const Regs& r, int c, uint32_t (&f)[4]) {
    __half2 scale, minus_minimum;
    FragmentsQ4K::scales(r.base.d, r.base.low, r.base.high, scale, minus_minimum);
    const __half2 offset = as_half2(kHalf1024);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = chunk_nibbles(r.base.q, c, i);
      const uint32_t bits = r.fifth >> (c / 2 * 4 + c % 2 * 2 + i) << 4;  // those of the word's columns at 8 b + 4
      const uint32_t even = nibble_pair(word, false) | (bits & 0x00100010u);
      const uint32_t odd = nibble_pair(word, true) | (bits >> 8 & 0x00100010u);
      f[2 * i] = as_bits(__hfma2(__hsub2(as_half2(even), offset), scale, minus_minimum));
      f[2 * i + 1] = as_bits(__hfma2(__hsub2(as_half2(odd), offset), scale, minus_minimum));
    }
  }
};

struct FragmentsQ6K {
  static constexpr int kChunks = 4;
  struct Regs {
    uint4 q;
    uint2 top;
    uint16_t scales;
    __half d;
  };
  struct Source {
    const uint4* quants;
    const uint2* top;
    const uint16_t* scales;
    const __half* super;
  };
  static __device__ __forceinline__ Source source(const PackedView& w, uint64_t cell, uint32_t t) {
    const uint64_t block = cell * 8 + t;
    return {static_cast<const uint4*>(w.quants) + block, static_cast<const uint2*>(w.high) + block,
            static_cast<const uint16_t*>(w.scales) + block, static_cast<const __half*>(w.super) + cell};
  }
  static __device__ __forceinline__ void load(const Source& from, uint32_t step, uint32_t piece, Regs& r) {
    const uint32_t block = step * 8 + piece * 4;
    r.q = load_stream_16(from.quants + block);
    r.top = load_stream_8(from.top + block);
    r.scales = __ldg(from.scales + block);
    r.d = __ldg(from.super + step);
  }
  static __device__ __forceinline__ void chunk(const Regs& r, int c, uint32_t (&f)[4]) {
    const auto s = static_cast<int8_t>(c < 2 ? r.scales & 0xff : r.scales >> 8);
    const __half2 scale = __float2half2_rn(__half2float(r.d) * static_cast<float>(s));
    const __half2 offset = as_half2(0x64206420u);  // 1024 + 32
    const uint32_t top = c < 2 ? r.top.x : r.top.y;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = chunk_nibbles(r.q, c, i);
      const uint32_t bits = top >> (2 * (c % 2 * 2 + i)) << 4;
      const uint32_t even = nibble_pair(word, false) | (bits & 0x00300030u);
      const uint32_t odd = nibble_pair(word, true) | (bits >> 8 & 0x00300030u);
      f[2 * i] = as_bits(__hmul2(__hsub2(as_half2(even), offset), scale));
      f[2 * i + 1] = as_bits(__hmul2(__hsub2(as_half2(odd), offset), scale));
    }
  }
};

// 16-bit floats: a chunk is 16 bytes, and a piece half a block.
template <bool kBrain>
struct Fragments16Bit {
  static constexpr int kChunks = 2;
  struct Regs {
    uint4 values[2];
  };
  struct Source {
    const uint4* values;
  };
  static __device__ __forceinline__ Source source(const PackedView& w, uint64_t cell, uint32_t t) {
    return {static_cast<const uint4*>(w.quants) + cell * 32 + t * 4};
  }
  static __device__ __forceinline__ void load(const Source& from, uint32_t step, uint32_t piece, Regs& r) {
    const uint4* at = from.values + step * 32 + piece / 2 * 16 + piece % 2 * 2;
    r.values[0] = load_stream_16(at);
    r.values[1] = load_stream_16(at + 1);
  }
  static __device__ __forceinline__ void chunk(const Regs& r, int c, uint32_t (&f)[4]) {
    const uint4& v = r.values[c];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t first = i == 0 ? v.x : v.z, second = i == 0 ? v.y : v.w;
      f[2 * i] = __byte_perm(first, second, 0x5410);
      f[2 * i + 1] = __byte_perm(first, second, 0x7632);
      if constexpr (kBrain) {
#pragma unroll
        for (int j = 2 * i; j < 2 * i + 2; ++j) {
          f[j] = as_bits(__floats2half2_rn(__uint_as_float(f[j] << 16), __uint_as_float(f[j] & 0xffff0000u)));
        }
      }
    }
  }
};
using FragmentsF16 = Fragments16Bit<false>;
using FragmentsBF16 = Fragments16Bit<true>;

struct FragmentsF32 {
  static constexpr int kChunks = 1;
  struct Regs {
    uint4 low, high;
  };
  struct Source {
    const uint4* values;
  };
  static __device__ __forceinline__ Source source(const PackedView& w, uint64_t cell, uint32_t t) {
    return {static_cast<const uint4*>(w.quants) + cell * 64 + t * 8};
  }
  static __device__ __forceinline__ void load(const Source& from, uint32_t step, uint32_t piece, Regs& r) {
    const uint4* at = from.values + step * 64 + piece / 4 * 32 + piece % 4 * 2;
    r.low = load_stream_16(at);
    r.high = load_stream_16(at + 1);
  }
  static __device__ __forceinline__ void chunk(const Regs& r, int, uint32_t (&f)[4]) {
    const auto pair = [](uint32_t a, uint32_t b) {
      return as_bits(__floats2half2_rn(__uint_as_float(a), __uint_as_float(b)));
    };
    f[0] = pair(r.low.x, r.low.z);
    f[1] = pair(r.low.y, r.low.w);
    f[2] = pair(r.high.x, r.high.z);
    f[3] = pair(r.high.y, r.high.w);
  }
};

}  // namespace carat::cuda
