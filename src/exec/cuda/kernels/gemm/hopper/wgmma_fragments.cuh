#pragma once

// Weights on their way from shared memory into wgmma's register operand. One struct per packing: what a ring slot
// holds, and how a lane makes its part of 64 columns from it. Every weight becomes bf16(d * q) with one rounding: the
// bits that unpack_bf16 gives.
//
// A slot holds kBlocks blocks of 64 columns of the tile's 128 rows: kPlanes planes of 128-byte rows (128-byte swizzle:
// 16-byte piece c of row r lies at piece c ^ (r % 8)), then 16 bytes of scales a row where the packing has them.
#include "exec/cuda/kernels/gemm/hopper/wgmma_tiles.h"
#include "exec/cuda/kernels/ptx/mma.cuh"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {

inline constexpr uint32_t kWgmmaPlaneBytes = kWgmmaTileRows * 128;
inline constexpr uint32_t kWgmmaScaleBytes = kWgmmaTileRows * 16;

// Which rows of the tile a lane feeds: `low` as row g of its warp's 16, and low + distance as row g + 8. Both are g
// modulo 8.
struct WgmmaRows {
  uint32_t low, distance;
};

__device__ __forceinline__ uint32_t load_shared_u16(uint32_t address) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// 32768 + byte `index` of the word, without a conversion instruction: the byte becomes bits 8 to 15 of the mantissa.
template <int kIndex>
__device__ __forceinline__ float biased(uint32_t word) {
  return __uint_as_float(__byte_perm(word, 0x47000000u, 0x7404 | (kIndex << 4)));
}

// d * (byte - zero) of two bytes. (32768 + zero) * d is exact in fp32 for a d of 11 bits and the zeros used here, and
// so is the result of the fused product before it is rounded to bf16.
__device__ __forceinline__ uint32_t scaled_pair(uint32_t bytes, float d, float minus_bias_d) {
  return bf16_pair(fmaf(biased<0>(bytes), d, minus_bias_d), fmaf(biased<1>(bytes), d, minus_bias_d));
}

__device__ __forceinline__ float half_of(const uint4& halves, int index) {
  const uint32_t words[4] = {halves.x, halves.y, halves.z, halves.w};
  const __half2 pair = *reinterpret_cast<const __half2*>(&words[index / 2]);
  return index % 2 == 0 ? __low2float(pair) : __high2float(pair);
}

// What the quantised packings share: a slot of one step of 256 columns, and a lane's addresses in it.
template <int kPlanesOf>
struct StepFragments {
  static constexpr int kBlocks = kStep / 64;
  static constexpr int kPlanes = kPlanesOf;
  static constexpr bool kScales = true;
  static constexpr uint32_t kSlotBytes = kPlanes * kWgmmaPlaneBytes + kWgmmaScaleBytes;

  uint32_t first;     // this lane's two bytes of piece 0 of row `low`; piece c is at first ^ 16 c
  uint32_t distance;  // from row `low` to the other, in bytes
  uint4 scales[2];    // of both rows

  __device__ void begin(uint32_t slot, const WgmmaRows& rows) {
    const uint32_t lane = threadIdx.x % 32;
    first = slot + rows.low * 128 + lane / 4 * 16 + lane % 4 * 2;
    distance = rows.distance * 128;
    const uint32_t at = slot + kPlanes * kWgmmaPlaneBytes + rows.low * 16;
    scales[0] = load_shared_16(at);
    scales[1] = load_shared_16(at + rows.distance * 16);
  }
  // The bytes of columns 2t, 2t + 1 (half 0) or 2t + 8, 2t + 9 (half 1) of 16-byte piece `piece` of a row.
  __device__ uint32_t bytes(int row, int plane, int piece, int half) const {
    return load_shared_u16((first ^ (piece * 16)) + row * distance + plane * kWgmmaPlaneBytes + half * 8);
  }
};

// make(block, a): block `block` of the slot (known to the compiler) as the operands of four k steps of 16.
template <Packing kPacking>
struct Fragments;

// Piece c of plane h: columns 16 h ... 16 h + 15 of block c.
template <>
struct Fragments<Packing::kQ8> : StepFragments<2> {
  static constexpr int kSlots = 2;
  __device__ __forceinline__ void make(int block, uint32_t (&a)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int piece = 2 * block + i / 2;
        const float d = half_of(scales[row], piece), minus_bias_d = -32896.0f * d;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          a[i][row + 2 * half] = scaled_pair(bytes(row, i % 2, piece, half) ^ 0x8080u, d, minus_bias_d);
        }
      }
    }
  }
};

// Byte j of piece c: columns j and j + 16 of block c.
template <>
struct Fragments<Packing::kQ4> : StepFragments<1> {
  static constexpr int kSlots = 4;
  __device__ __forceinline__ void make(int block, uint32_t (&a)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int piece = 2 * block + i;
        const float d = half_of(scales[row], piece), minus_bias_d = -32776.0f * d;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t both = bytes(row, 0, piece, half);
          a[2 * i][row + 2 * half] = scaled_pair(both & 0x0f0fu, d, minus_bias_d);
          a[2 * i + 1][row + 2 * half] = scaled_pair((both >> 4) & 0x0f0fu, d, minus_bias_d);
        }
      }
    }
  }
};

// Quants as kQ4; scale * q - minimum has to meet the exact q, so the bias is taken off first.
template <>
struct Fragments<Packing::kQ4K> : StepFragments<1> {
  static constexpr int kSlots = 4;
  __device__ static uint32_t pair(uint32_t bytes, float scale, float minimum) {
    return bf16_pair(fmaf(biased<0>(bytes) - 32768.0f, scale, -minimum),
                     fmaf(biased<1>(bytes) - 32768.0f, scale, -minimum));
  }
  __device__ __forceinline__ void make(int block, uint32_t (&a)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float scale, minimum;
        k_header(scales[row], 2 * block + i, scale, minimum);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t both = bytes(row, 0, 2 * block + i, half);
          a[2 * i][row + 2 * half] = pair(both & 0x0f0fu, scale, minimum);
          a[2 * i + 1][row + 2 * half] = pair((both >> 4) & 0x0f0fu, scale, minimum);
        }
      }
    }
  }
};

// bf16 as it is: 64 columns are one row of a plane.
template <>
struct Fragments<Packing::kBF16> {
  static constexpr int kBlocks = 1;
  static constexpr int kPlanes = 1;
  static constexpr bool kScales = false;
  static constexpr int kSlots = 4;
  static constexpr uint32_t kSlotBytes = kWgmmaPlaneBytes;

  uint32_t first;  // what this lane names to ldmatrix: its row, piece 0 or 1; 16 columns further on is ^ 32

  __device__ void begin(uint32_t slot, const WgmmaRows& rows) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4;
    const uint32_t row = rows.low - g + lane % 8 + (lane / 8 % 2) * rows.distance;
    first = slot + row * 128 + ((lane / 16) ^ (lane % 8)) * 16;
  }
  __device__ __forceinline__ void make(int, uint32_t (&a)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) load_matrices(a[i], first ^ (i * 32));
  }
};

}  // namespace carat::cuda
