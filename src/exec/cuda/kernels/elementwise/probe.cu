// Measures what the memory of this GPU can deliver: a read of everything in 16-byte loads, eight of them in flight per
// thread, by as many threads as fit. The result is a bit-wise sum, so that the compiler has to keep every load.
#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/elementwise/probe.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kLoads = 8;
constexpr uint32_t kBlocksPerSm = 4;

__global__ void __launch_bounds__(kThreads) fill_kernel(uint32_t* words, uint64_t count) {
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<uint64_t>(gridDim.x) * kThreads) {
    uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15ull;  // the finaliser of splitmix64
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
    // Sign and mantissa are random, the exponent says [0.5, 1).
    words[i] = (static_cast<uint32_t>(bits >> 32) & 0x807f807fu) | 0x3f003f00u;
  }
}

__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* data, uint64_t count, uint32_t* sink) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * kThreads;
  uint32_t sum = 0;
  uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kLoads - 1) * stride < count; i += kLoads * stride) {
    uint4 loaded[kLoads];
#pragma unroll
    for (uint32_t k = 0; k < kLoads; ++k) loaded[k] = __ldcs(data + i + k * stride);
#pragma unroll
    for (uint32_t k = 0; k < kLoads; ++k) sum ^= loaded[k].x ^ loaded[k].y ^ loaded[k].z ^ loaded[k].w;
  }
  for (; i < count; i += stride) {
    const uint4 loaded = __ldcs(data + i);
    sum ^= loaded.x ^ loaded.y ^ loaded.z ^ loaded.w;
  }
  sum = __reduce_xor_sync(0xffffffffu, sum);
  if (threadIdx.x % 32 == 0) atomicXor(sink, sum);
}

}  // namespace

void fill_probe(void* data, uint64_t bytes, cudaStream_t stream) {
  launch_kernel("fill_probe", fill_kernel, dim3(1024), dim3(kThreads), 0, LaunchConfig{stream, false},
                static_cast<uint32_t*>(data), bytes / sizeof(uint32_t));
}

void read_probe(const void* data, uint64_t bytes, uint32_t sm_count, uint32_t* sink, cudaStream_t stream) {
  check(cudaMemsetAsync(sink, 0, sizeof(uint32_t), stream), "clearing the probe's result");
  launch_kernel("read_probe", read_kernel, dim3(kBlocksPerSm * sm_count), dim3(kThreads), 0,
                LaunchConfig{stream, false}, static_cast<const uint4*>(data), bytes / sizeof(uint4), sink);
}

}  // namespace carat::cuda
