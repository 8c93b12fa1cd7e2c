#include "exec/cuda/kernels/attention/hopper/attention_wgmma_256.cuh"

namespace carat::cuda {
namespace {

__global__ void __launch_bounds__(kWgmmaAttentionThreads, 1)
    attention_256_wgmma_kernel(const __grid_constant__ WgmmaAttentionJob job) {
#if defined(CARAT_SM90A)
  extern __shared__ uint8_t raw_memory[];
  wait_for_predecessor();
  release_successor();
  Wgmma256::attend(job, {(shared_address(raw_memory) + 1023) / 1024 * 1024});
#else
  __trap();
#endif
}

}  // namespace

void launch_prefill_256_wgmma(const PrefillArguments& arguments, const LaunchConfig& launch) {
  const WgmmaAttentionJob job{wgmma_cache_map(arguments.kv.k, Wgmma256::kHd, Wgmma256::kTileKeys),
                              wgmma_cache_map(arguments.kv.v, Wgmma256::kHd, Wgmma256::kTileKeys), arguments};
  constexpr uint32_t kBytes = Wgmma256::Memory::kBytes + 1024;
  allow_shared_memory(attention_256_wgmma_kernel, kBytes, "prompt attention");
  launch_kernel("prompt attention", attention_256_wgmma_kernel, dim3(arguments.tile_count * arguments.shape.Hkv),
                dim3(kWgmmaAttentionThreads), kBytes, launch, job);
}

}  // namespace carat::cuda
