// Residual, normalisation and conversion kernels of prompt chunks. Bound by memory: x is read and written once as fp32,
// the delta and the result are bf16; one block a row. What counts is how many rows are under way on an SM: small
// blocks, and of a row nothing but x and the delta in registers; the norms' weights come from L1 when they are needed.
#include "exec/cuda/kernels/elementwise/norm.h"
#include "exec/cuda/kernels/gemv/activation.cuh"

namespace carat::cuda {
namespace {

template <int kPieces, typename Out>
__global__ void __launch_bounds__(kRowThreads)
    residual_norm_kernel(const __grid_constant__ ResidualNormOf<__nv_bfloat16> residual, Out* out) {
  CARAT_BLOCK_MEMORY(16, float, row_memory);
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

// Rows of whole quads, and no experts. Thread t has quads t, t + kThreads, ...: kPieces of them.
template <uint32_t kThreads, int kPieces, typename Out>
__global__ void __launch_bounds__(kThreads)
    plain_residual_norm_kernel(const __grid_constant__ ResidualNormOf<__nv_bfloat16> a, Out* out) {
  __shared__ float scratch[2][kThreads / 32];
  wait_for_predecessor();
  release_successor();
  const uint64_t first = static_cast<uint64_t>(blockIdx.x) * a.d;
  const float inverse_d = 1.0f / static_cast<float>(a.d);
  const auto column = [](int i) { return 4 * (threadIdx.x + static_cast<uint32_t>(i) * kThreads); };
  const auto quad = [](const float* from, uint32_t c) { return __ldg(reinterpret_cast<const float4*>(from + c)); };
  float4 x[kPieces] = {};
  uint2 delta[kPieces] = {};
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    if (column(i) >= a.d) continue;
    x[i] = *reinterpret_cast<const float4*>(a.x + first + column(i));
    if (a.delta != nullptr) delta[i] = __ldcs(reinterpret_cast<const uint2*>(a.delta + first + column(i)));
  }
  if (a.delta != nullptr) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) squares += dot4(floats_of(delta[i]));
    const float factor = rsqrtf(block_sum<kThreads>(squares, scratch[0]) * inverse_d + a.eps);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (column(i) >= a.d) continue;
      const float4 f = floats_of(delta[i]), w = quad(a.delta_norm, column(i));
      x[i] = make_float4((x[i].x + f.x * factor * w.x) * a.scale, (x[i].y + f.y * factor * w.y) * a.scale,
                         (x[i].z + f.z * factor * w.z) * a.scale, (x[i].w + f.w * factor * w.w) * a.scale);
      if (a.x_out != nullptr) store4(a.x_out + first, column(i), a.d, x[i]);
    }
  }
  if (out == nullptr) return;
  float factor = 1.0f;
  if (a.next_norm != nullptr) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) squares += dot4(x[i]);
    factor = rsqrtf(block_sum<kThreads>(squares, scratch[1]) * inverse_d + a.eps);
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    if (column(i) >= a.d) continue;
    const float4 w = a.next_norm == nullptr ? make_float4(1.0f, 1.0f, 1.0f, 1.0f) : quad(a.next_norm, column(i));
    store4(out + first, column(i), a.d,
           make_float4(x[i].x * factor * w.x, x[i].y * factor * w.y, x[i].z * factor * w.z, x[i].w * factor * w.w));
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

// Rows that are many leave no SM idle, whatever the size of a block; few are done sooner by large ones.
constexpr uint32_t kManyRows = 1024;

template <typename Out>
bool launch_plain_residual_norm(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, Out* out,
                                const LaunchConfig& launch) {
  const bool moves = residual.delta == nullptr && residual.x_out != nullptr;
  if (residual.experts != nullptr || moves || residual.d % 4 != 0) return false;
  const auto start = [&](auto threads, auto pieces) {
    if (residual.d > 4 * threads() * pieces()) return false;
    launch_kernel("residual_norm", plain_residual_norm_kernel<threads(), pieces(), Out>, dim3(rows), dim3(threads()), 0,
                  launch, residual, out);
    return true;
  };
  const auto first_that_holds = [&](auto threads, auto... pieces) { return (start(threads, pieces) || ...); };
  using std::integral_constant;
  if (rows >= kManyRows) {
    return first_that_holds(integral_constant<uint32_t, 128>{}, integral_constant<int, 3>{},
                            integral_constant<int, 5>{}, integral_constant<int, 6>{}, integral_constant<int, 8>{},
                            integral_constant<int, 11>{});
  }
  return first_that_holds(integral_constant<uint32_t, 256>{}, integral_constant<int, 2>{}, integral_constant<int, 3>{},
                          integral_constant<int, 4>{}, integral_constant<int, 6>{});
}

template <typename Out>
void launch_residual_norm(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, Out* out,
                          const LaunchConfig& launch) {
  if (launch_plain_residual_norm(residual, rows, out, launch)) return;
  const size_t shared_bytes = (residual.d + 3) / 4 * 4 * sizeof(float);
  with_row_pieces(residual.d, [&](auto pieces) {
    launch_kernel("residual_norm", residual_norm_kernel<pieces(), Out>, dim3(rows), dim3(kRowThreads), shared_bytes,
                  launch, residual, out);
  });
}

}  // namespace

void residual_norm_bf16(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, __nv_bfloat16* out,
                        const LaunchConfig& launch) {
  launch_residual_norm(residual, rows, out, launch);
}
void residual_norm_float(const ResidualNormOf<__nv_bfloat16>& residual, uint32_t rows, float* out,
                         const LaunchConfig& launch) {
  launch_residual_norm(residual, rows, out, launch);
}

void gather_float_rows(const float* x, const uint32_t* index, uint32_t count, uint32_t d, float* out,
                       const LaunchConfig& launch) {
  launch_kernel("gather_float_rows", gather_float_rows_kernel, dim3(count), dim3(256), 0, launch, x, index, d, out);
}

void to_bf16(const float* values, uint64_t count, __nv_bfloat16* out, const LaunchConfig& launch) {
  launch_kernel("to_bf16", to_bf16_kernel, dim3(static_cast<uint32_t>((count + 255) / 256)), dim3(256), 0, launch,
                values, count, out);
}

}  // namespace carat::cuda
