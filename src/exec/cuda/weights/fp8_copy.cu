// e4m3 copies of packed weights, made once at load. A block takes a row and unpacks it twice: for its largest weight,
// then to round. Bound by the unpacking, some 50 ms for 4 billion weights.
#include <stdexcept>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/gemm/fp8_scale.cuh"
#include "exec/cuda/weights/fp8_copy.h"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {
namespace {

constexpr uint32_t kThreads = 128;

__global__ void __launch_bounds__(kThreads) unpack_fp8_kernel(const PackedView view, const Fp8Rows out) {
  __shared__ float largest_of_warp[kThreads / 32];
  const uint64_t row = blockIdx.x;
  float values[32];
  float largest = 0.0f;
  for (uint32_t block = threadIdx.x; block * 32 < view.cols; block += kThreads) {
    unpack_block(view, row * view.steps + block / kStepBlocks, block % kStepBlocks, values);
#pragma unroll
    for (int e = 0; e < 32; ++e) largest = fmaxf(largest, fabsf(values[e]));
  }
  for (int offset = 16; offset > 0; offset >>= 1) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  if (threadIdx.x % 32 == 0) largest_of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  for (uint32_t w = 0; w < kThreads / 32; ++w) largest = fmaxf(largest, largest_of_warp[w]);
  const Fp8Scale scale(largest);
  if (threadIdx.x == 0) out.scales[row] = scale.scale;
  for (uint32_t block = threadIdx.x; block * 32 < view.cols; block += kThreads) {
    unpack_block(view, row * view.steps + block / kStepBlocks, block % kStepBlocks, values);
    auto* to = reinterpret_cast<uint4*>(out.values + row * view.cols + block * 32);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      if (block * 32 + half * 16 >= view.cols) break;
      const float* v = values + half * 16;
      to[half] = make_uint4(scale.four(v[0], v[1], v[2], v[3]), scale.four(v[4], v[5], v[6], v[7]),
                            scale.four(v[8], v[9], v[10], v[11]), scale.four(v[12], v[13], v[14], v[15]));
    }
  }
}

}  // namespace

void unpack_fp8(const PackedView& matrix, const Fp8Rows& out, cudaStream_t stream) {
  if (!fp8_columns_fit(matrix.cols)) throw std::logic_error("internal check failed: a row e4m3 products cannot read");
  launch_kernel("unpack_fp8", unpack_fp8_kernel, dim3(matrix.rows), dim3(kThreads), 0, LaunchConfig{stream, false},
                matrix, out);
}

}  // namespace carat::cuda
