#include "exec/cuda/kernels/attention_wgmma.cuh"

#include "exec/cuda/device/tensor_map.h"

namespace carat::cuda {
namespace {

// Clusters came with compute capability 9.0; this kernel runs nowhere else.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CARAT_ATTENTION_CLUSTER __cluster_dims__(2, 1, 1)
#else
#define CARAT_ATTENTION_CLUSTER
#endif

__global__ void CARAT_ATTENTION_CLUSTER __launch_bounds__(kWgmmaAttentionThreads, 1)
    attention_wgmma_kernel(const __grid_constant__ WgmmaAttentionJob job) {
#if defined(CARAT_HOPPER)
  extern __shared__ uint8_t raw_memory[];
  wait_for_predecessor();
  release_successor();
  attend_by_warpgroups(job, {(shared_address(raw_memory) + 1023) / 1024 * 1024});
#else
  __trap();
#endif
}

// The cache does not say how many sequences it has; the kernel reads only rows of the tiles' sequences.
constexpr uint64_t kAllRows = uint64_t{1} << 31;

CUtensorMap cache_map(const __half* base, uint32_t box_keys) {
  return make_tensor_map(
      base, {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, kWgmmaAttentionHd, kAllRows, kWgmmaAttentionHd * 2, 64, box_keys, true});
}

}  // namespace

bool wgmma_attention_supports(const AttentionShape& shape, const KvView& kv) {
  return shape.hd == kWgmmaAttentionHd && shape.window == 0 && !kv.quantised() &&
         shape.H / shape.Hkv <= kWgmmaAttentionRows;
}

void attention_prefill_wgmma(const PrefillArguments& arguments, const Launch& how) {
  const WgmmaAttentionJob job{cache_map(arguments.kv.k, kAttentionGroupKeys),
                              cache_map(arguments.kv.v, kAttentionValueKeys), arguments};
  constexpr uint32_t kBytes = WgmmaAttentionMemory::kBytes + 1024;
  allow_shared_memory(attention_wgmma_kernel, kBytes, "prompt attention");
  const uint32_t pairs = (arguments.tile_count + 1) / 2;
  launch("prompt attention", attention_wgmma_kernel, dim3(pairs * 2 * arguments.shape.Hkv),
         dim3(kWgmmaAttentionThreads), kBytes, how, job);
}

}  // namespace carat::cuda
