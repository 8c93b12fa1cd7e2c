#pragma once

// Device code: what mmq.cuh has to know of each packing. A chunk is 128 columns of a row, half a step; `block` is one
// of its four blocks of 32. The layouts of weights/packed.h already are fragments of mma.m16n8k32: word t of a 16-byte
// piece is what thread t of a quad multiplies, so pieces go from memory through shared memory to registers as they are.
//
//   kQuantPieces, kHighBytes   of a row and chunk, as they lie in shared memory
//   quant_source(...)          where piece p of a chunk is in memory
//   load_columns(...)          the 32 weight rows of a warp and one block as operands b of four mma
//   Raw, decode(...)           a row's scales of a chunk as they lie in memory, and as floats. Of the two that a block
//                              can have the second is its minimum (kQ4K, kQ5K) or the scale of columns 16 ... 31 (kQ6K)
#include <cuda_fp16.h>

#include "exec/cuda/kernels/mmq/mmq_shape.h"
#include "exec/cuda/kernels/ptx/mma.cuh"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {

// Operands b of four column tiles of 8.
struct MmqColumns {
  uint32_t b[4][2];
};

// Bytes of column tiles through which mmq.cuh reads: rows of eight pieces, piece p of row r at p ^ (r % 8), or rows of
// four, piece p at p ^ (r / 2 % 4). Either way eight rows of one piece are in different banks.
template <int kPieces>
__device__ __forceinline__ uint32_t piece_offset(uint32_t row, uint32_t piece) {
  if constexpr (kPieces == 8) {
    return row * 128 + ((piece ^ (row % 8)) * 16);
  } else {
    return row * 64 + ((piece ^ (row / 2 % 4)) * 16);
  }
}

template <Packing packing>
struct MmqWeights;

// A block has one scale, for integers that are kTimes those of the file.
template <int kTimes>
struct HalfScales {
  using Raw = uint2;
  static __device__ __forceinline__ Raw load_scales(const PackedView& w, uint32_t row, uint32_t chunk) {
    const uint64_t cell = static_cast<uint64_t>(row) * w.steps + chunk / 2;
    return __ldg(static_cast<const uint2*>(w.scales) + cell * 2 + chunk % 2);
  }
  static __device__ __forceinline__ void decode(const Raw& raw, uint32_t, float (&scales)[4], float (&)[4]) {
    constexpr float kFactor = 1.0f / kTimes;
    const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&raw.x));
    const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&raw.y));
    scales[0] = low.x * kFactor, scales[1] = low.y * kFactor;
    scales[2] = high.x * kFactor, scales[3] = high.y * kFactor;
  }
};

// Where nibbles are: the packing has a piece for each block, its low nibbles columns 0 ... 15.
struct NibbleQuants {
  static constexpr int kQuantPieces = 4;
  static __device__ __forceinline__ const void* quant_source(const PackedView& w, uint32_t row, uint32_t chunk,
                                                             uint32_t piece) {
    const uint64_t cell = static_cast<uint64_t>(row) * w.steps + chunk / 2;
    return static_cast<const uint4*>(w.quants) + cell * 8 + chunk % 2 * 4 + piece;
  }
  // The words of four column tiles: word[j] has both operands of tile j.
  static __device__ __forceinline__ void load_words(uint32_t (&word)[4], uint32_t tile, uint32_t warp_column,
                                                    uint32_t block) {
    load_matrices(word, tile + piece_offset<4>(warp_column + threadIdx.x % 32, block));
  }
};

template <>
struct MmqWeights<Packing::kQ8> : HalfScales<1> {
  static constexpr int kQuantPieces = 8, kHighBytes = 0;
  static __device__ __forceinline__ const void* quant_source(const PackedView& w, uint32_t row, uint32_t chunk,
                                                             uint32_t piece) {
    const uint64_t cell = static_cast<uint64_t>(row) * w.steps + chunk / 2;
    return static_cast<const uint4*>(w.quants) + cell * 16 + piece % 2 * 8 + chunk % 2 * 4 + piece / 2;
  }
  static __device__ __forceinline__ void load_columns(MmqColumns& columns, uint32_t tile, uint32_t,
                                                      uint32_t warp_column, uint32_t block) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t pair = 0; pair < 2; ++pair) {
      uint32_t r[4];
      const uint32_t row = warp_column + pair * 16 + lane / 16 * 8 + lane % 8;
      load_matrices(r, tile + piece_offset<8>(row, 2 * block + lane / 8 % 2));
      columns.b[2 * pair][0] = r[0], columns.b[2 * pair][1] = r[1];
      columns.b[2 * pair + 1][0] = r[2], columns.b[2 * pair + 1][1] = r[3];
    }
  }
};

template <>
struct MmqWeights<Packing::kQ4> : HalfScales<16>, NibbleQuants {
  static constexpr int kHighBytes = 0;
  // A nibble q in the upper half of a byte, its top bit flipped, is the int8 16 (q - 8): the offset costs nothing.
  static __device__ __forceinline__ void load_columns(MmqColumns& columns, uint32_t tile, uint32_t,
                                                      uint32_t warp_column, uint32_t block) {
    uint32_t word[4];
    load_words(word, tile, warp_column, block);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      columns.b[j][0] = ((word[j] << 4) & 0xf0f0f0f0u) ^ 0x80808080u;
      columns.b[j][1] = (word[j] & 0xf0f0f0f0u) ^ 0x80808080u;
    }
  }
};

// A scale and a minimum for a block.
struct HeaderScales {
  using Raw = uint4;
  static __device__ __forceinline__ Raw load_scales(const PackedView& w, uint32_t row, uint32_t chunk) {
    return __ldg(static_cast<const uint4*>(w.scales) + static_cast<uint64_t>(row) * w.steps + chunk / 2);
  }
  static __device__ __forceinline__ void decode(const Raw& raw, uint32_t chunk, float (&scales)[4],
                                                float (&minima)[4]) {
#pragma unroll
    for (uint32_t block = 0; block < 4; ++block) {
      k_header(raw, chunk % 2 * 4 + block, scales[block], minima[block]);
    }
  }
};

template <>
struct MmqWeights<Packing::kQ4K> : HeaderScales, NibbleQuants {
  static constexpr int kHighBytes = 0;
  static __device__ __forceinline__ void load_columns(MmqColumns& columns, uint32_t tile, uint32_t,
                                                      uint32_t warp_column, uint32_t block) {
    uint32_t word[4];
    load_words(word, tile, warp_column, block);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      columns.b[j][0] = word[j] & 0x0f0f0f0fu;
      columns.b[j][1] = (word[j] >> 4) & 0x0f0f0f0fu;
    }
  }
};

template <>
struct MmqWeights<Packing::kQ5K> : HeaderScales, NibbleQuants {
  static constexpr int kHighBytes = 16;  // a word for each block
  static __device__ __forceinline__ const void* high_source(const PackedView& w, uint32_t row, uint32_t chunk) {
    const uint64_t cell = static_cast<uint64_t>(row) * w.steps + chunk / 2;
    return static_cast<const uint4*>(w.high) + cell * 2 + chunk % 2;
  }
  static __device__ __forceinline__ void load_columns(MmqColumns& columns, uint32_t tile, uint32_t high,
                                                      uint32_t warp_column, uint32_t block) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t word[4];
    load_words(word, tile, warp_column, block);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t fifth = load_shared_4(high + (warp_column + j * 8 + g) * kHighBytes + block * 4) >> t;
      columns.b[j][0] = (word[j] & 0x0f0f0f0fu) | ((fifth & 0x01010101u) << 4);
      columns.b[j][1] = ((word[j] >> 4) & 0x0f0f0f0fu) | (fifth & 0x10101010u);
    }
  }
};

template <>
struct MmqWeights<Packing::kQ6K> : NibbleQuants {
  static constexpr int kHighBytes = 32;  // two words for each block
  struct Raw {
    uint2 scales;
    __half super;
  };
  static __device__ __forceinline__ const void* high_source(const PackedView& w, uint32_t row, uint32_t chunk) {
    const uint64_t cell = static_cast<uint64_t>(row) * w.steps + chunk / 2;
    return static_cast<const uint4*>(w.high) + cell * 4 + chunk % 2 * 2;
  }
  static __device__ __forceinline__ Raw load_scales(const PackedView& w, uint32_t row, uint32_t chunk) {
    const uint64_t cell = static_cast<uint64_t>(row) * w.steps + chunk / 2;
    return {__ldg(static_cast<const uint2*>(w.scales) + cell * 2 + chunk % 2),
            __ldg(static_cast<const __half*>(w.super) + cell)};
  }
  // Of the first and of the second half of each block.
  static __device__ __forceinline__ void decode(const Raw& raw, uint32_t, float (&first)[4], float (&second)[4]) {
    const float d = __half2float(raw.super) * 0.25f;  // load_columns() makes four times the file's integers
#pragma unroll
    for (uint32_t block = 0; block < 4; ++block) {
      const uint32_t pair = (block < 2 ? raw.scales.x : raw.scales.y) >> (block % 2 * 16);
      first[block] = d * static_cast<float>(static_cast<int8_t>(pair & 0xffu));
      second[block] = d * static_cast<float>(static_cast<int8_t>((pair >> 8) & 0xffu));
    }
  }
  static __device__ __forceinline__ void load_columns(MmqColumns& columns, uint32_t tile, uint32_t high,
                                                      uint32_t warp_column, uint32_t block) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t word[4];
    load_words(word, tile, warp_column, block);
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // as for kQ4: six bits in the upper part of a byte, the top one flipped
      const uint2 top = load_shared_8(high + (warp_column + j * 8 + g) * kHighBytes + block * 8);
      columns.b[j][0] = (((word[j] & 0x0f0f0f0fu) << 2) | (((top.x >> (2 * t)) & 0x03030303u) << 6)) ^ 0x80808080u;
      columns.b[j][1] = (((word[j] >> 2) & 0x3c3c3c3cu) | (((top.y >> (2 * t)) & 0x03030303u) << 6)) ^ 0x80808080u;
    }
  }
};

}  // namespace carat::cuda
