// What rounds activations for e4m3 products, one block a row: the largest |v| of the row, then v * 448 / largest to the
// nearest e4m3. A row stays in shared memory between the two, so it is read from memory once. Bound by memory: 2 bytes
// a value in (4 for the two halves of GEGLU; the residual step has its own), 1 out.
#include <cuda_fp8.h>

#include "exec/cuda/kernels/gemm/fp8_rows.h"
#include "exec/cuda/kernels/gemm/fp8_scale.cuh"
#include "exec/cuda/kernels/gemv/activation.cuh"
#include "exec/cuda/kernels/gemv/packings.cuh"

namespace carat::cuda {
namespace {

constexpr uint32_t kColumnsAtOnce = 8;  // 16 bytes of bf16

union Eight {
  uint4 words;
  __nv_bfloat162 pairs[4];
};

// NaN where any value is. `scratch` holds 8 floats; one barrier.
__device__ __forceinline__ float block_largest(float value, float* scratch) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    value = max_or_nan(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = value;
  __syncthreads();
  float largest = 0.0f;
#pragma unroll
  for (int w = 0; w < static_cast<int>(kRowThreads / 32); ++w) largest = max_or_nan(largest, scratch[w]);
  return largest;
}

// Where values come from: eight of them, as bf16.
struct PlainSource {
  const __nv_bfloat16* values;
  uint32_t cols;
  __device__ uint4 at(uint64_t row, uint32_t column) const {
    return *reinterpret_cast<const uint4*>(values + row * cols + column);
  }
};

struct GegluSource {
  const __nv_bfloat16* gate_up;
  uint32_t cols;
  __device__ uint4 at(uint64_t row, uint32_t column) const {
    const __nv_bfloat16* gate = gate_up + row * 2 * cols + column;
    Eight g, u, out;
    g.words = *reinterpret_cast<const uint4*>(gate);
    u.words = *reinterpret_cast<const uint4*>(gate + cols);
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float2 a = __bfloat1622float2(g.pairs[p]), b = __bfloat1622float2(u.pairs[p]);
      out.pairs[p] = __floats2bfloat162_rn(gelu(a.x) * b.x, gelu(a.y) * b.y);
    }
    return out.words;
  }
};

template <typename Source>
__global__ void __launch_bounds__(kRowThreads) round_fp8_kernel(const Source source, const Fp8Rows out) {
  extern __shared__ __align__(16) uint4 row_pieces[];  // a thread reads back what it wrote itself
  __shared__ float scratch[8];
  wait_for_predecessor();
  release_successor();
  const uint64_t row = blockIdx.x;
  float largest = 0.0f;
  for (uint32_t c = kColumnsAtOnce * threadIdx.x; c < source.cols; c += kColumnsAtOnce * kRowThreads) {
    Eight eight;
    eight.words = source.at(row, c);
    row_pieces[c / kColumnsAtOnce] = eight.words;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float2 v = __bfloat1622float2(eight.pairs[p]);
      largest = max_or_nan(largest, max_or_nan(fabsf(v.x), fabsf(v.y)));
    }
  }
  const Fp8Scale scale(block_largest(largest, scratch));
  if (threadIdx.x == 0) out.scales[row] = scale.scale;
  uint8_t* to = out.values + row * source.cols;
  for (uint32_t c = kColumnsAtOnce * threadIdx.x; c < source.cols; c += kColumnsAtOnce * kRowThreads) {
    Eight eight;
    eight.words = row_pieces[c / kColumnsAtOnce];
    const auto four = [&](int p) {
      const float2 a = __bfloat1622float2(eight.pairs[p]), b = __bfloat1622float2(eight.pairs[p + 1]);
      return scale.four(a.x, a.y, b.x, b.y);
    };
    *reinterpret_cast<uint2*>(to + c) = make_uint2(four(0), four(2));
  }
}

template <int kPieces>
__global__ void __launch_bounds__(kRowThreads)
    residual_norm_fp8_kernel(const __grid_constant__ ResidualNormOf<__nv_bfloat16> residual, const Fp8Rows out) {
  extern __shared__ __align__(16) float row_memory[];
  __shared__ float scratch[kSumScratch + 8];
  wait_for_predecessor();
  release_successor();
  residual_norm_pieces<kPieces>(residual, blockIdx.x, row_memory, scratch);
  float largest = 0.0f;
  for (uint32_t c = 4 * threadIdx.x; c < residual.d; c += kSlab) {
    const float4 v = *reinterpret_cast<const float4*>(row_memory + c);
    largest = max_or_nan(largest, max_or_nan(max_or_nan(fabsf(v.x), fabsf(v.y)), max_or_nan(fabsf(v.z), fabsf(v.w))));
  }
  const Fp8Scale scale(block_largest(largest, scratch + kSumScratch));
  if (threadIdx.x == 0) out.scales[blockIdx.x] = scale.scale;
  uint8_t* to = out.values + static_cast<uint64_t>(blockIdx.x) * residual.d;
  for (uint32_t c = 4 * threadIdx.x; c < residual.d; c += kSlab) {
    const float4 v = *reinterpret_cast<const float4*>(row_memory + c);
    *reinterpret_cast<uint32_t*>(to + c) = scale.four(v.x, v.y, v.z, v.w);
  }
}

template <typename Source>
void launch_rounding(const char* name, const Source& source, uint32_t rows, const Fp8Rows& out,
                     const LaunchConfig& launch) {
  if (!fp8_columns_fit(source.cols)) throw std::logic_error("internal check failed: a row e4m3 products cannot read");
  const size_t shared_bytes = source.cols * sizeof(__nv_bfloat16);
  launch_kernel(name, round_fp8_kernel<Source>, dim3(rows), dim3(kRowThreads), shared_bytes, launch, source, out);
}

}  // namespace

void round_fp8(const __nv_bfloat16* values, uint32_t rows, uint32_t cols, const Fp8Rows& out,
               const LaunchConfig& launch) {
  launch_rounding("round_fp8", PlainSource{values, cols}, rows, out, launch);
}

void geglu_fp8(const __nv_bfloat16* gate_up, uint32_t rows, uint32_t F, const Fp8Rows& out,
               const LaunchConfig& launch) {
  launch_rounding("geglu_fp8", GegluSource{gate_up, F}, rows, out, launch);
}

void residual_norm_fp8(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, const Fp8Rows& out,
                       const LaunchConfig& launch) {
  if (!fp8_columns_fit(residual.d)) throw std::logic_error("internal check failed: a row e4m3 products cannot read");
  with_row_pieces(residual.d, [&](auto pieces) {
    launch_kernel("residual_norm_fp8", residual_norm_fp8_kernel<pieces()>, dim3(rows), dim3(kRowThreads),
                  residual.d * sizeof(float), launch, residual, out);
  });
}

}  // namespace carat::cuda
