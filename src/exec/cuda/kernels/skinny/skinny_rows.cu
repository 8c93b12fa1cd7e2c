// Residual, norm and rounding of the rows of a batched decode step. One block a row; bound by latency.
#include "exec/cuda/kernels/gemv/activation.cuh"
#include "exec/cuda/kernels/gemv/packings.cuh"
#include "exec/cuda/kernels/skinny/skinny_gemm.h"
#include "exec/cuda/kernels/skinny/skinny_rows.cuh"

namespace carat::cuda {
namespace {

template <int kPieces>
__global__ void __launch_bounds__(kRowThreads)
    skinny_residual_norm_kernel(const __grid_constant__ ResidualNorm residual, const __grid_constant__ SkinnyRows out,
                                uint32_t steps, uint32_t* clear) {
  CARAT_BLOCK_MEMORY(16, float, row_memory);
  __shared__ float scratch[kSumScratch];
  __shared__ float maxima[kRowThreads / 32];
  wait_for_predecessor();
  release_successor();
  const uint32_t row = blockIdx.x;
  residual_norm_pieces<kPieces>(residual, row, row_memory, scratch);
  float largest = 0.0f;
  for (uint32_t c = 4 * threadIdx.x; c < residual.d; c += kSlab) {
    const float4 v = load4(row_memory, c, residual.d);
    largest = max_or_nan(largest, max_or_nan(max_or_nan(fabsf(v.x), fabsf(v.y)), max_or_nan(fabsf(v.z), fabsf(v.w))));
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (uint32_t w = 0; w < kRowThreads / 32; ++w) largest = max_or_nan(largest, maxima[w]);
  const float scale = skinny_scale(largest);
  const float inverse = 1.0f / scale;
  if (threadIdx.x == 0) {
    out.scale[row] = scale;
    if (clear != nullptr) clear[row] = 0;
  }
  for (uint32_t c = 8 * threadIdx.x; c < steps * kStep; c += 8 * kRowThreads) {
    reinterpret_cast<uint4*>(out.fragments)[skinny_place(c, row, out.tiles)] =
        skinny_chunk(load4(row_memory, c, residual.d), load4(row_memory, c + 4, residual.d), inverse);
  }
}

__global__ void __launch_bounds__(kRowThreads)
    skinny_geglu_kernel(const float* gate_up, uint32_t F, float* out, uint32_t leading, uint32_t* largest) {
  wait_for_predecessor();
  release_successor();
  const uint32_t row = blockIdx.y, c = blockIdx.x * kRowThreads + threadIdx.x;
  const float* gate = gate_up + static_cast<uint64_t>(row) * 2 * F;
  float magnitude = 0.0f;
  if (c < F) {
    const float v = gelu(gate[c]) * gate[F + c];
    out[static_cast<uint64_t>(row) * leading + c] = v;
    magnitude = fabsf(v);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    magnitude = max_or_nan(magnitude, __shfl_xor_sync(0xffffffffu, magnitude, offset));
  }
  if (threadIdx.x % 32 == 0) atomicMax(largest + row, __float_as_uint(magnitude));
}

}  // namespace

void skinny_geglu(const float* gate_up, uint32_t rows, uint32_t F, float* out, uint32_t leading, uint32_t* largest,
                  const LaunchConfig& launch) {
  launch_kernel("batch_geglu", skinny_geglu_kernel, dim3((F + kRowThreads - 1) / kRowThreads, rows), dim3(kRowThreads),
                0, launch, gate_up, F, out, leading, largest);
}

void skinny_residual_norm(const ResidualNorm& residual, uint32_t rows, const SkinnyRows& out, uint32_t* clear,
                          const LaunchConfig& launch) {
  const uint32_t steps = steps_of(residual.d);
  with_row_pieces(residual.d, [&](auto pieces) {
    launch_kernel("batch_residual_norm", skinny_residual_norm_kernel<pieces()>, dim3(rows), dim3(kRowThreads),
                  static_cast<size_t>(steps) * kStep * 4, launch, residual, out, steps, clear);
  });
}

}  // namespace carat::cuda
