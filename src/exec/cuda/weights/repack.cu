// Repacking and unpacking of weights: once per load, and per row for embeddings. Bound by memory traffic; exactness and
// plain code come first here. The raw layouts are those of quant/blocks.h (docs/gemma4.md 8.2).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/weights/late_formats.cuh"
#include "exec/cuda/weights/repack.h"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {
namespace {

using quant::Format;

__device__ __forceinline__ uint32_t load_u16(const uint8_t* p) { return p[0] | (static_cast<uint32_t>(p[1]) << 8); }
__device__ __forceinline__ uint32_t load_u32(const uint8_t* p) { return load_u16(p) | (load_u16(p + 2) << 16); }
__device__ __forceinline__ float load_half(const uint8_t* p) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(load_u16(p))));
}

__constant__ int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
__constant__ int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

__device__ __forceinline__ uint32_t nibble_of(const uint8_t* qs, int e) {
  return e < 16 ? qs[e] & 15u : qs[e - 16] >> 4;
}

// Blocks of 32 with one scale as int8 and half: Q8_0, Q5_0, IQ4_NL.
__device__ void block_to_q8(Format format, const uint8_t* block, int8_t (&q)[32], uint32_t& d) {
  d = load_u16(block);
  for (int e = 0; e < 32; ++e) {
    switch (format) {
      case Format::kQ8_0:
        q[e] = static_cast<int8_t>(block[2 + e]);
        break;
      case Format::kQ5_0: {
        const uint32_t fifth = (load_u32(block + 2) >> e) & 1u;
        q[e] = static_cast<int8_t>(static_cast<int>(nibble_of(block + 6, e) | (fifth << 4)) - 16);
        break;
      }
      default:
        q[e] = kIq4Values[nibble_of(block + 2, e)];
        break;  // IQ4_NL
    }
  }
}

// Quant of element e (0..255) of a K-quant super block.
__device__ uint32_t k_quant(Format format, const uint8_t* block, int e) {
  const int n = e / 128, g = e % 128 / 32, l = e % 32;
  switch (format) {
    case Format::kQ4_K: {
      const uint8_t byte = block[16 + 32 * (e / 64) + e % 32];
      return e % 64 < 32 ? byte & 15u : byte >> 4;
    }
    case Format::kQ5_K: {
      const uint8_t byte = block[48 + 32 * (e / 64) + e % 32];
      return (e % 64 < 32 ? byte & 15u : byte >> 4) | (((block[16 + e % 32] >> (e / 32)) & 1u) << 4);
    }
    default: {  // Q6_K
      const uint8_t byte = block[64 * n + l + 32 * (g & 1)];
      return (g < 2 ? byte & 15u : byte >> 4) | (((block[128 + 32 * n + l] >> (2 * g)) & 3u) << 4);
    }
  }
}

__device__ void k_scale_minimum(const uint8_t* sc, int j, uint32_t& scale, uint32_t& minimum) {
  if (j < 4) {
    scale = sc[j] & 63u;
    minimum = sc[j + 4] & 63u;
  } else {
    scale = (sc[j + 4] & 15u) | ((sc[j - 4] >> 6) << 4);
    minimum = (sc[j + 4] >> 4) | ((sc[j] >> 6) << 4);
  }
}

// Value of element e of a row in a format that becomes floats.
__device__ float raw_value(Format format, const uint8_t* row, uint32_t e) {
  switch (format) {
    case Format::kF32:
      return __uint_as_float(load_u32(row + 4 * e));
    case Format::kF16:
      return load_half(row + 2 * e);
    case Format::kBF16:
      return __uint_as_float(load_u16(row + 2 * e) << 16);
    case Format::kQ4_1: {
      const uint8_t* block = row + e / 32 * 20;
      return load_half(block) * static_cast<float>(nibble_of(block + 4, e % 32)) + load_half(block + 2);
    }
    case Format::kQ5_1: {
      const uint8_t* block = row + e / 32 * 24;
      const uint32_t q = nibble_of(block + 8, e % 32) | (((load_u32(block + 4) >> (e % 32)) & 1u) << 4);
      return load_half(block) * static_cast<float>(q) + load_half(block + 2);
    }
    case Format::kMXFP4: {
      const uint8_t* block = row + e / 32 * 17;
      return ldexpf(1.0f, static_cast<int>(block[0]) - 128) * kFp4Values[nibble_of(block + 1, e % 32)];
    }
    case Format::kQ2_K: {
      const uint8_t* block = row + e / 256 * 84;
      const uint32_t i = e % 256, n = i / 128, g = i % 128 / 32, l = i % 32;
      const uint32_t q = (block[16 + 32 * n + l] >> (2 * g)) & 3u;
      const uint32_t s = block[i / 16];
      return load_half(block + 80) * static_cast<float>(s & 15u) * static_cast<float>(q) -
             load_half(block + 82) * static_cast<float>(s >> 4);
    }
    case Format::kQ3_K: {
      const uint8_t* block = row + e / 256 * 110;
      const uint32_t i = e % 256, n = i / 128, g = i % 128 / 32, l = i % 32, k = i / 16;
      const uint8_t* sc = block + 96;
      const uint32_t low2 = (block[32 + 32 * n + l] >> (2 * g)) & 3u;
      const int q = static_cast<int>(low2) - (((block[l] >> (4 * n + g)) & 1u) ? 0 : 4);
      const uint32_t low4 = k < 8 ? sc[k] & 15u : sc[k - 8] >> 4;
      const int s = static_cast<int>(low4 | (((sc[8 + k % 4] >> (2 * (k / 4))) & 3u) << 4)) - 32;
      return load_half(block + 108) * static_cast<float>(s) * static_cast<float>(q);
    }
    default:
      return late_format_value(format, row, e, kFp4Values, kIq4Values);
  }
}

__device__ uint32_t pack_nibbles(const uint32_t* low, const uint32_t* high) {
  uint32_t word = 0;
  for (int b = 0; b < 4; ++b) word |= ((low[b] & 15u) | ((high[b] & 15u) << 4)) << (8 * b);
  return word;
}

// One thread packs one block of 32 columns.
__global__ void repack_kernel(Format format, const uint8_t* raw, uint64_t row_bytes, uint32_t rows, PackedView view,
                              uint32_t first_row) {
  const uint64_t index = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint64_t blocks_per_row = static_cast<uint64_t>(view.steps) * kStepBlocks;
  if (index >= rows * blocks_per_row) return;
  const uint64_t row = index / blocks_per_row;
  const uint32_t block = static_cast<uint32_t>(index % blocks_per_row);
  const uint32_t step = block / kStepBlocks, lane = block % kStepBlocks;
  const uint64_t cell = (first_row + row) * view.steps + step;
  const uint8_t* source = raw + row * row_bytes;
  const bool inside = block * 32 < view.cols;
  auto* quants = static_cast<uint4*>(const_cast<void*>(view.quants));
  auto* scales = static_cast<uint8_t*>(const_cast<void*>(view.scales));
  auto* high = static_cast<uint32_t*>(const_cast<void*>(view.high));

  if (view.packing == Packing::kQ8) {
    alignas(16) int8_t q[32] = {};
    uint32_t d = 0;
    const uint32_t block_bytes = format == Format::kQ8_0 ? 34 : format == Format::kQ5_0 ? 22 : 18;
    if (inside) block_to_q8(format, source + static_cast<uint64_t>(block) * block_bytes, q, d);
    quants[cell * 16 + lane] = *reinterpret_cast<const uint4*>(q);
    quants[cell * 16 + 8 + lane] = *reinterpret_cast<const uint4*>(q + 16);
    reinterpret_cast<uint16_t*>(scales)[cell * 8 + lane] = static_cast<uint16_t>(d);
    return;
  }
  if (view.packing == Packing::kQ4) {
    const uint8_t* from = source + static_cast<uint64_t>(block) * 18;
    uint32_t words[4] = {0x88888888u, 0x88888888u, 0x88888888u, 0x88888888u};
    uint32_t d = 0;
    if (inside) {
      d = load_u16(from);
      for (int w = 0; w < 4; ++w) words[w] = load_u32(from + 2 + 4 * w);  // already lo = j, hi = j + 16
    }
    quants[cell * 8 + lane] = make_uint4(words[0], words[1], words[2], words[3]);
    reinterpret_cast<uint16_t*>(scales)[cell * 8 + lane] = static_cast<uint16_t>(d);
    return;
  }
  if (view.packing == Packing::kQ4K || view.packing == Packing::kQ5K || view.packing == Packing::kQ6K) {
    const uint32_t block_bytes = format == Format::kQ4_K ? 144 : format == Format::kQ5_K ? 176 : 210;
    const uint8_t* from = source + static_cast<uint64_t>(step) * block_bytes;
    uint32_t q[32];
    for (int e = 0; e < 32; ++e) q[e] = k_quant(format, from, static_cast<int>(lane) * 32 + e);
    quants[cell * 8 + lane] = make_uint4(pack_nibbles(q, q + 16), pack_nibbles(q + 4, q + 20),
                                         pack_nibbles(q + 8, q + 24), pack_nibbles(q + 12, q + 28));
    if (view.packing == Packing::kQ6K) {
      uint32_t top[2] = {0, 0};
      for (int e = 0; e < 32; ++e) top[e / 16] |= (q[e] >> 4) << (8 * (e % 4) + 2 * (e % 16 / 4));
      high[(cell * 8 + lane) * 2] = top[0];
      high[(cell * 8 + lane) * 2 + 1] = top[1];
      scales[cell * 16 + lane * 2] = from[192 + lane * 2];
      scales[cell * 16 + lane * 2 + 1] = from[192 + lane * 2 + 1];
      if (lane == 0) {
        static_cast<uint16_t*>(const_cast<void*>(view.super))[cell] = static_cast<uint16_t>(load_u16(from + 208));
      }
      return;
    }
    if (view.packing == Packing::kQ5K) {
      uint32_t fifth = 0;
      for (int e = 0; e < 32; ++e) fifth |= ((q[e] >> 4) & 1u) << (8 * (e % 4) + 4 * (e / 16) + e % 16 / 4);
      high[cell * 8 + lane] = fifth;
    }
    if (lane == 0) {
      uint32_t low[2] = {0, 0}, top = 0;
      for (int j = 0; j < 8; ++j) {
        uint32_t s, m;
        k_scale_minimum(from + 4, j, s, m);
        low[j / 4] |= ((s & 15u) | ((m & 15u) << 4)) << (8 * (j % 4));
        top |= ((s >> 4) | ((m >> 4) << 2)) << (4 * j);
      }
      reinterpret_cast<uint4*>(scales)[cell] = make_uint4(load_u32(from), low[0], low[1], top);
    }
    return;
  }
  for (uint32_t e = 0; e < 32; ++e) {
    const uint32_t column = block * 32 + e;
    const float value = column < view.cols ? raw_value(format, source, column) : 0.0f;
    const uint64_t at = cell * kStep + lane * 32 + e;
    if (view.packing == Packing::kF16) reinterpret_cast<__half*>(quants)[at] = __float2half_rn(value);
    if (view.packing == Packing::kBF16) reinterpret_cast<__nv_bfloat16*>(quants)[at] = __float2bfloat16_rn(value);
    if (view.packing == Packing::kF32) reinterpret_cast<float*>(quants)[at] = value;
  }
}

__global__ void unpack_bf16_kernel(PackedView view, __nv_bfloat16* out, uint32_t leading) {
  const uint64_t index = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint64_t blocks_per_row = static_cast<uint64_t>(view.steps) * kStepBlocks;
  if (index >= view.rows * blocks_per_row) return;
  const uint64_t row = index / blocks_per_row;
  const uint32_t block = static_cast<uint32_t>(index % blocks_per_row);
  if (block * 32 >= view.cols) return;
  float values[32];
  unpack_block(view, row * view.steps + block / kStepBlocks, block % kStepBlocks, values);
  __nv_bfloat16* to = out + row * leading + block * 32;
  if (view.cols - block * 32 >= 32 && leading % 8 == 0) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      __nv_bfloat162 pairs[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) pairs[p] = __floats2bfloat162_rn(values[8 * c + 2 * p], values[8 * c + 2 * p + 1]);
      reinterpret_cast<uint4*>(to)[c] = *reinterpret_cast<const uint4*>(pairs);
    }
  } else {
    for (uint32_t e = 0; e < 32 && block * 32 + e < view.cols; ++e) to[e] = __float2bfloat16_rn(values[e]);
  }
}

__global__ void gather_rows_kernel(PackedView view, const int32_t* ids, float scale, float* out, uint32_t leading) {
  wait_for_predecessor();
  release_successor();
  const uint32_t id = static_cast<uint32_t>(ids[blockIdx.x]);
  float* to = out + static_cast<uint64_t>(blockIdx.x) * leading;
  const uint64_t cell = static_cast<uint64_t>(id) * view.steps;
  for (uint32_t c = threadIdx.x; c < view.cols; c += blockDim.x) {
    to[c] = id < view.rows ? unpack_value(view, cell + c / kStep, c % kStep) * scale : __int_as_float(0x7fc00000);
  }
}

constexpr uint32_t kThreads = 256;
uint32_t blocks_for(uint64_t items) { return static_cast<uint32_t>((items + kThreads - 1) / kThreads); }

}  // namespace

void repack(Format format, const void* raw, uint32_t rows, const PackedView& out, uint32_t first_row,
            cudaStream_t stream) {
  if (rows == 0) return;
  const uint64_t row_bytes = quant::info(format).row_bytes(out.cols);
  const uint64_t items = static_cast<uint64_t>(rows) * out.steps * kStepBlocks;
  launch_kernel("repack", repack_kernel, dim3(blocks_for(items)), dim3(kThreads), 0, LaunchConfig{stream, false},
                format, static_cast<const uint8_t*>(raw), row_bytes, rows, out, first_row);
}

void unpack_bf16(const PackedView& matrix, __nv_bfloat16* out, uint32_t leading, cudaStream_t stream) {
  const uint64_t items = static_cast<uint64_t>(matrix.rows) * matrix.steps * kStepBlocks;
  launch_kernel("unpack_bf16", unpack_bf16_kernel, dim3(blocks_for(items)), dim3(kThreads), 0,
                LaunchConfig{stream, false}, matrix, out, leading);
}

void gather_rows(const PackedView& matrix, const int32_t* ids, uint32_t count, float scale, float* out,
                 uint32_t leading, cudaStream_t stream, bool overlap) {
  launch_kernel("gather_rows", gather_rows_kernel, dim3(count), dim3(kThreads), 0, LaunchConfig{stream, overlap},
                matrix, ids, scale, out, leading);
}

}  // namespace carat::cuda
