#include "exec/cuda/kernels/attention/hopper/attention_wgmma_512.cuh"

namespace carat::cuda {
namespace {

// Clusters came with compute capability 9.0; this kernel runs nowhere else.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CARAT_ATTENTION_CLUSTER __cluster_dims__(2, 1, 1)
#else
#define CARAT_ATTENTION_CLUSTER
#endif

__global__ void CARAT_ATTENTION_CLUSTER __launch_bounds__(kWgmmaAttentionThreads, 1)
    attention_512_wgmma_kernel(const __grid_constant__ WgmmaAttentionJob job) {
#if defined(CARAT_SM90A)
  extern __shared__ uint8_t raw_memory[];
  wait_for_predecessor();
  release_successor();
  Wgmma512::attend(job, {(shared_address(raw_memory) + 1023) / 1024 * 1024});
#else
  __trap();
#endif
}

}  // namespace

void launch_prefill_512_wgmma(const PrefillArguments& arguments, const LaunchConfig& launch) {
  const WgmmaAttentionJob job{wgmma_cache_map(arguments.kv.k, Wgmma512::kHd, Wgmma512::kBlockKeys),
                              wgmma_cache_map(arguments.kv.v, Wgmma512::kHd, Wgmma512::kValueKeys), arguments};
  constexpr uint32_t kBytes = Wgmma512::Memory::kBytes + 1024;
  allow_shared_memory(attention_512_wgmma_kernel, kBytes, "prompt attention");
  launch_kernel("prompt attention", attention_512_wgmma_kernel, dim3(arguments.tile_count * 2 * arguments.shape.Hkv),
                dim3(kWgmmaAttentionThreads), kBytes, launch, job);
}

}  // namespace carat::cuda
