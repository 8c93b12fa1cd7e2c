#pragma once

// Device code: for each packing, what one lane loads of a step and its dot product with quantised (or float)
// activations. A lane holds block `lane8` of 32 columns of the step; layouts are in weights/packed.h.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "exec/cuda/kernels/gemv/activation.h"
#include "exec/cuda/kernels/ptx/load_stream.cuh"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {

// Activations of one row and step as seen by one lane, in shared memory.
struct LaneActivation {
  const uint4* words;     // at [lane8] of uint4 [2 parts][2 halves][8]: high parts of both halves, then low parts
  const BlockMeta* meta;  // at [lane8]
  const float* values;    // 256 floats of the step
};

__device__ __forceinline__ int dot16(const uint4& a, const uint4& x, int sum) {
  sum = __dp4a(static_cast<int>(a.x), static_cast<int>(x.x), sum);
  sum = __dp4a(static_cast<int>(a.y), static_cast<int>(x.y), sum);
  sum = __dp4a(static_cast<int>(a.z), static_cast<int>(x.z), sum);
  return __dp4a(static_cast<int>(a.w), static_cast<int>(x.w), sum);
}

// Sum of 16 weights (int8) times 128 h + l of one half of the block; at most 2^25, so nothing overflows.
__device__ __forceinline__ int dot_half(const uint4& w, const LaneActivation& a, int half) {
  return 128 * dot16(w, a.words[8 * half], 0) + dot16(w, a.words[16 + 8 * half], 0);
}
// Sum over the block of (w - offset) x, both halves with their own scale.
__device__ __forceinline__ float dot_block(const uint4& low, const uint4& high, int offset, const LaneActivation& a) {
  const BlockMeta meta = *a.meta;
  return meta.scale[0] * static_cast<float>(dot_half(low, a, 0) - offset * meta.sum[0]) +
         meta.scale[1] * static_cast<float>(dot_half(high, a, 1) - offset * meta.sum[1]);
}

__device__ __forceinline__ uint4 low_nibbles(const uint4& q) {
  return make_uint4(q.x & 0x0f0f0f0fu, q.y & 0x0f0f0f0fu, q.z & 0x0f0f0f0fu, q.w & 0x0f0f0f0fu);
}
__device__ __forceinline__ uint4 high_nibbles(const uint4& q) {
  return make_uint4((q.x >> 4) & 0x0f0f0f0fu, (q.y >> 4) & 0x0f0f0f0fu, (q.z >> 4) & 0x0f0f0f0fu,
                    (q.w >> 4) & 0x0f0f0f0fu);
}

struct DotQ8 {
  static constexpr bool kFloat = false;
  static constexpr int kDepth = 3;  // steps in flight per lane
  struct Regs {
    uint4 low, high;
    __half d;
  };
  static __device__ __forceinline__ void load(const PackedView& w, uint64_t cell, uint32_t lane8, Regs& r) {
    const auto* q = static_cast<const uint4*>(w.quants) + cell * 16 + lane8;
    r.low = load_stream_16(q);
    r.high = load_stream_16(q + 8);
    r.d = __ldg(static_cast<const __half*>(w.scales) + cell * 8 + lane8);
  }
  static __device__ __forceinline__ float dot(const Regs& r, const LaneActivation& a) {
    return __half2float(r.d) * dot_block(r.low, r.high, 0, a);
  }
};

struct DotQ4 {
  static constexpr bool kFloat = false;
  static constexpr int kDepth = 5;
  struct Regs {
    uint4 q;
    __half d;
  };
  static __device__ __forceinline__ void load(const PackedView& w, uint64_t cell, uint32_t lane8, Regs& r) {
    r.q = load_stream_16(static_cast<const uint4*>(w.quants) + cell * 8 + lane8);
    r.d = __ldg(static_cast<const __half*>(w.scales) + cell * 8 + lane8);
  }
  static __device__ __forceinline__ float dot(const Regs& r, const LaneActivation& a) {
    return __half2float(r.d) * dot_block(low_nibbles(r.q), high_nibbles(r.q), 8, a);
  }
};

struct DotQ4K {
  static constexpr bool kFloat = false;
  static constexpr int kDepth = 3;
  struct Regs {
    uint4 q, header;
  };
  static __device__ __forceinline__ void load(const PackedView& w, uint64_t cell, uint32_t lane8, Regs& r) {
    r.q = load_stream_16(static_cast<const uint4*>(w.quants) + cell * 8 + lane8);
    r.header = __ldg(static_cast<const uint4*>(w.scales) + cell);
    // Only this lane's block is needed: keep the nibbles of S and M in one word and free the rest.
    r.header.y = byte_of(lane8 < 4 ? r.header.y : r.header.z, lane8 & 3) | ((r.header.w >> (4 * lane8) & 15u) << 8);
  }
  static __device__ __forceinline__ float combine(const uint4& header, float products, const LaneActivation& a) {
    const __half2 d = *reinterpret_cast<const __half2*>(&header.x);
    const uint32_t h = header.y;
    const float scale = __low2float(d) * static_cast<float>((h & 15u) | ((h >> 4) & 0x30u));
    const float minimum = __high2float(d) * static_cast<float>(((h >> 4) & 15u) | ((h >> 6) & 0x30u));
    const BlockMeta meta = *a.meta;
    const float sum = meta.scale[0] * static_cast<float>(meta.sum[0]) + meta.scale[1] * static_cast<float>(meta.sum[1]);
    return scale * products - minimum * sum;
  }
  static __device__ __forceinline__ float dot(const Regs& r, const LaneActivation& a) {
    return combine(r.header, dot_block(low_nibbles(r.q), high_nibbles(r.q), 0, a), a);
  }
};

struct DotQ5K {
  static constexpr bool kFloat = false;
  static constexpr int kDepth = 2;
  struct Regs {
    uint4 q, header;
    uint32_t fifth;
  };
  static __device__ __forceinline__ void load(const PackedView& w, uint64_t cell, uint32_t lane8, Regs& r) {
    DotQ4K::Regs base;
    DotQ4K::load(w, cell, lane8, base);
    r.q = base.q;
    r.header = base.header;
    r.fifth = __ldg(static_cast<const uint32_t*>(w.high) + cell * 8 + lane8);
  }
  static __device__ __forceinline__ float dot(const Regs& r, const LaneActivation& a) {
    uint4 low = low_nibbles(r.q), high = high_nibbles(r.q);
    low.x |= fifth_bits(r.fifth, 0), low.y |= fifth_bits(r.fifth, 1);
    low.z |= fifth_bits(r.fifth, 2), low.w |= fifth_bits(r.fifth, 3);
    high.x |= fifth_bits(r.fifth, 4), high.y |= fifth_bits(r.fifth, 5);
    high.z |= fifth_bits(r.fifth, 6), high.w |= fifth_bits(r.fifth, 7);
    return DotQ4K::combine(r.header, dot_block(low, high, 0, a), a);
  }
};

struct DotQ6K {
  static constexpr bool kFloat = false;
  static constexpr int kDepth = 2;
  struct Regs {
    uint4 q;
    uint2 top;
    uint16_t scales;
    __half d;
  };
  static __device__ __forceinline__ void load(const PackedView& w, uint64_t cell, uint32_t lane8, Regs& r) {
    r.q = load_stream_16(static_cast<const uint4*>(w.quants) + cell * 8 + lane8);
    r.top = load_stream_8(static_cast<const uint2*>(w.high) + cell * 8 + lane8);
    r.scales = __ldg(static_cast<const uint16_t*>(w.scales) + cell * 8 + lane8);
    r.d = __ldg(static_cast<const __half*>(w.super) + cell);
  }
  static __device__ __forceinline__ float dot(const Regs& r, const LaneActivation& a) {
    uint4 low = low_nibbles(r.q), high = high_nibbles(r.q);
    low.x |= top_bits(r.top.x, 0), low.y |= top_bits(r.top.x, 1);
    low.z |= top_bits(r.top.x, 2), low.w |= top_bits(r.top.x, 3);
    high.x |= top_bits(r.top.y, 0), high.y |= top_bits(r.top.y, 1);
    high.z |= top_bits(r.top.y, 2), high.w |= top_bits(r.top.y, 3);
    const BlockMeta meta = *a.meta;
    const auto s0 = static_cast<float>(static_cast<int8_t>(r.scales & 0xff));
    const auto s1 = static_cast<float>(static_cast<int8_t>(r.scales >> 8));
    const auto first = static_cast<float>(dot_half(low, a, 0) - 32 * meta.sum[0]);
    const auto second = static_cast<float>(dot_half(high, a, 1) - 32 * meta.sum[1]);
    return __half2float(r.d) * (s0 * meta.scale[0] * first + s1 * meta.scale[1] * second);
  }
};

// Float weights: lane l takes every eighth 16-byte piece of the step.
struct Dot16Bit {
  static constexpr bool kFloat = true;
  static constexpr int kDepth = 1;
  struct Regs {
    uint4 piece[4];
  };
  static __device__ __forceinline__ void load(const PackedView& w, uint64_t cell, uint32_t lane8, Regs& r) {
    const auto* q = static_cast<const uint4*>(w.quants) + cell * 32 + lane8;
#pragma unroll
    for (int i = 0; i < 4; ++i) r.piece[i] = load_stream_16(q + 8 * i);
  }
};

struct DotBF16 : Dot16Bit {
  static __device__ __forceinline__ float dot(const Regs& r, const LaneActivation& a, uint32_t lane8) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* x = a.values + (8 * i + lane8) * 8;
      const float4 x0 = *reinterpret_cast<const float4*>(x), x1 = *reinterpret_cast<const float4*>(x + 4);
      const auto value = [](uint32_t word, bool upper) {
        return __uint_as_float(upper ? word & 0xffff0000u : word << 16);
      };
      sum += value(r.piece[i].x, false) * x0.x + value(r.piece[i].x, true) * x0.y;
      sum += value(r.piece[i].y, false) * x0.z + value(r.piece[i].y, true) * x0.w;
      sum += value(r.piece[i].z, false) * x1.x + value(r.piece[i].z, true) * x1.y;
      sum += value(r.piece[i].w, false) * x1.z + value(r.piece[i].w, true) * x1.w;
    }
    return sum;
  }
};

struct DotF16 : Dot16Bit {
  static __device__ __forceinline__ float dot(const Regs& r, const LaneActivation& a, uint32_t lane8) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* x = a.values + (8 * i + lane8) * 8;
      const float4 x0 = *reinterpret_cast<const float4*>(x), x1 = *reinterpret_cast<const float4*>(x + 4);
      const auto pair = [](const uint32_t& word) { return __half22float2(*reinterpret_cast<const __half2*>(&word)); };
      const float2 w0 = pair(r.piece[i].x), w1 = pair(r.piece[i].y), w2 = pair(r.piece[i].z), w3 = pair(r.piece[i].w);
      sum += w0.x * x0.x + w0.y * x0.y + w1.x * x0.z + w1.y * x0.w;
      sum += w2.x * x1.x + w2.y * x1.y + w3.x * x1.z + w3.y * x1.w;
    }
    return sum;
  }
};

struct DotF32 {
  static constexpr bool kFloat = true;
  static constexpr int kDepth = 1;
  struct Regs {
    uint4 piece[8];
  };
  static __device__ __forceinline__ void load(const PackedView& w, uint64_t cell, uint32_t lane8, Regs& r) {
    const auto* q = static_cast<const uint4*>(w.quants) + cell * 64 + lane8;
#pragma unroll
    for (int i = 0; i < 8; ++i) r.piece[i] = load_stream_16(q + 8 * i);
  }
  static __device__ __forceinline__ float dot(const Regs& r, const LaneActivation& a, uint32_t lane8) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 x = *reinterpret_cast<const float4*>(a.values + (8 * i + lane8) * 4);
      sum += __uint_as_float(r.piece[i].x) * x.x + __uint_as_float(r.piece[i].y) * x.y;
      sum += __uint_as_float(r.piece[i].z) * x.z + __uint_as_float(r.piece[i].w) * x.w;
    }
    return sum;
  }
};

template <typename Dot>
__device__ __forceinline__ float lane_dot(const typename Dot::Regs& r, const LaneActivation& a, uint32_t lane8) {
  if constexpr (Dot::kFloat) {
    return Dot::dot(r, a, lane8);
  } else {
    return Dot::dot(r, a);
  }
}

// By one exponential: 0.5 x (1 + tanh u) = x / (1 + e^(-2 u)).
__device__ __forceinline__ float gelu(float x) {
  const float u = 0.7978845608028654f * x * (1.0f + 0.044715f * x * x);
  return __fdividef(x, 1.0f + __expf(-2.0f * u));
}

}  // namespace carat::cuda
