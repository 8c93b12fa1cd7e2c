// Residual, normalisation and conversion kernels of prompt chunks. Bound by memory: x is read and written once as fp32,
// the delta and the result are bf16; one block a row.
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/norm.h"

namespace carat::cuda {
namespace {

template <int kPieces, typename Out>
__global__ void __launch_bounds__(kRowThreads)
    residual_norm_kernel(const __grid_constant__ ResidualNormOf<__nv_bfloat16> residual, Out* out) {
  extern __shared__ __align__(16) float row_memory[];
  __shared__ float scratch[kSumScratch];
  wait_for_predecessor();
  release_successor();
  residual_norm_pieces<kPieces>(residual, blockIdx.x, row_memory, scratch);
  if (out == nullptr) return;
  Out* to = out + static_cast<uint64_t>(blockIdx.x) * residual.d;
  for (uint32_t c = 4 * threadIdx.x; c < residual.d; c += kSlab) {
    store4(to, c, residual.d, *reinterpret_cast<const float4*>(row_memory + c));
  }
}

__global__ void gather_float_rows_kernel(const float* x, const uint32_t* index, uint32_t d, float* out) {
  wait_for_predecessor();
  release_successor();
  const float* from = x + static_cast<uint64_t>(index[blockIdx.x]) * d;
  float* to = out + static_cast<uint64_t>(blockIdx.x) * d;
  for (uint32_t c = threadIdx.x; c < d; c += blockDim.x) to[c] = from[c];
}

__global__ void to_bf16_kernel(const float* values, uint64_t count, __nv_bfloat16* out) {
  wait_for_predecessor();
  release_successor();
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = __float2bfloat16_rn(values[i]);
}

template <typename Out>
void launch_residual_norm(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, Out* out, const Launch& how) {
  const size_t shared_bytes = (residual.d + 3) / 4 * 4 * sizeof(float);
  with_row_pieces(residual.d, [&](auto pieces) {
    launch("residual_norm", residual_norm_kernel<pieces(), Out>, dim3(rows), dim3(kRowThreads), shared_bytes, how,
           residual, out);
  });
}

}  // namespace

void residual_norm_bf16(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, __nv_bfloat16* out,
                        const Launch& how) {
  launch_residual_norm(residual, rows, out, how);
}
void residual_norm_float(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, float* out, const Launch& how) {
  launch_residual_norm(residual, rows, out, how);
}

void gather_float_rows(const float* x, const uint32_t* index, uint32_t count, uint32_t d, float* out,
                       const Launch& how) {
  launch("gather_float_rows", gather_float_rows_kernel, dim3(count), dim3(256), 0, how, x, index, d, out);
}

void to_bf16(const float* values, uint64_t count, __nv_bfloat16* out, const Launch& how) {
  launch("to_bf16", to_bf16_kernel, dim3(static_cast<uint32_t>((count + 255) / 256)), dim3(256), 0, how, values, count,
         out);
}

}  // namespace carat::cuda
