#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.cuh"

namespace carat::cuda {

template void launch_wgmma_gemm<Packing::kQ4>(const WgmmaJob& job, uint32_t width, uint32_t blocks,
                                              const LaunchConfig& launch);

bool wgmma_kernels_compiled() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, wgmma_gemm_kernel<Packing::kQ4, 64>), "wgmma_product");
  return attributes.ptxVersion >= 90;
}

}  // namespace carat::cuda
