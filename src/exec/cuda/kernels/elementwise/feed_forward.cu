// Element-wise kernels around the feed-forward and per-layer-embedding products of prompt chunks. Bound by memory.
#include "exec/cuda/kernels/elementwise/feed_forward.h"

#include "exec/cuda/kernels/gemv/packings.cuh"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {
namespace {

union Eight {
  uint4 words;
  __nv_bfloat162 pairs[4];
};

__global__ void geglu_kernel(const __nv_bfloat16* gate_up, uint32_t F, __nv_bfloat16* out) {
  wait_for_predecessor();
  release_successor();
  const uint64_t row = blockIdx.x;  // rows can exceed the 65535 blocks the other dimensions allow
  const __nv_bfloat16* gate = gate_up + row * 2 * F;
  const __nv_bfloat16* up = gate + F;
  const uint32_t c = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
  if (c >= F) return;
  if (F % 8 == 0) {
    Eight g, u, o;
    g.words = *reinterpret_cast<const uint4*>(gate + c);
    u.words = *reinterpret_cast<const uint4*>(up + c);
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float2 a = __bfloat1622float2(g.pairs[p]), b = __bfloat1622float2(u.pairs[p]);
      o.pairs[p] = __floats2bfloat162_rn(gelu(a.x) * b.x, gelu(a.y) * b.y);
    }
    *reinterpret_cast<uint4*>(out + row * F + c) = o.words;
    return;
  }
  for (uint32_t e = c; e < c + 8 && e < F; ++e) {
    out[row * F + e] = __float2bfloat16_rn(gelu(__bfloat162float(gate[e])) * __bfloat162float(up[e]));
  }
}

__global__ void gelu_times_kernel(const __nv_bfloat16* gate, const float* factors, uint32_t leading, uint32_t P,
                                  __nv_bfloat16* out) {
  wait_for_predecessor();
  release_successor();
  const uint64_t row = blockIdx.x;
  for (uint32_t c = threadIdx.x; c < P; c += blockDim.x) {
    out[row * P + c] = __float2bfloat16_rn(gelu(__bfloat162float(gate[row * P + c])) * factors[row * leading + c]);
  }
}

__device__ __forceinline__ float value_of(float v) { return v; }
__device__ __forceinline__ float value_of(__nv_bfloat16 v) { return __bfloat162float(v); }

// One warp per slice.
template <typename T>
__global__ void combine_ple_kernel(const __grid_constant__ PleJob job, const T* projection, float* out) {
  wait_for_predecessor();
  release_successor();
  const uint32_t slice = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (slice >= job.slices) return;
  const uint64_t at = (static_cast<uint64_t>(blockIdx.y) * job.slices + slice) * job.P;
  float squares = 0.0f;
  for (uint32_t c = lane; c < job.P; c += 32) {
    const float v = value_of(projection[at + c]) * job.projection_scale;
    squares += v * v;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
  const float factor = rsqrtf(squares / static_cast<float>(job.P) + job.eps);
  const uint64_t first_cell = static_cast<uint64_t>(job.tokens[blockIdx.y]) * job.table.steps;
  for (uint32_t c = lane; c < job.P; c += 32) {
    const uint32_t column = slice * job.P + c;
    const float megakernel_part =
        unpack_value(job.table, first_cell + column / kStep, column % kStep) * job.table_scale;
    const float v = value_of(projection[at + c]) * job.projection_scale;
    out[at + c] = (v * factor * job.norm[c] + megakernel_part) * 0.70710678118654752f;
  }
}

template <typename T>
void launch_combine(const PleJob& job, const T* projection, uint32_t rows, float* out, const LaunchConfig& launch) {
  launch_kernel("combine_ple", combine_ple_kernel<T>, dim3((job.slices + 7) / 8, rows), dim3(256), 0, launch, job,
                projection, out);
}

}  // namespace

void geglu(const __nv_bfloat16* gate_up, uint32_t rows, uint32_t F, __nv_bfloat16* out, const LaunchConfig& launch) {
  launch_kernel("geglu", geglu_kernel, dim3(rows, (F + 2047) / 2048), dim3(256), 0, launch, gate_up, F, out);
}

void gelu_times(const __nv_bfloat16* gate, const float* factors, uint32_t leading, uint32_t rows, uint32_t P,
                __nv_bfloat16* out, const LaunchConfig& launch) {
  launch_kernel("gelu_times", gelu_times_kernel, dim3(rows), dim3(256), 0, launch, gate, factors, leading, P, out);
}

void combine_ple(const PleJob& job, const __nv_bfloat16* projection, uint32_t rows, float* out,
                 const LaunchConfig& launch) {
  launch_combine(job, projection, rows, out, launch);
}
void combine_ple(const PleJob& job, const float* projection, uint32_t rows, float* out, const LaunchConfig& launch) {
  launch_combine(job, projection, rows, out, launch);
}

}  // namespace carat::cuda
