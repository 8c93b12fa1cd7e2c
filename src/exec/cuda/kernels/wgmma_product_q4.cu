#include "exec/cuda/kernels/wgmma_product.cuh"

namespace carat::cuda {

template void launch_wgmma_product<Packing::kQ4>(const WgmmaJob& job, uint32_t width, uint32_t blocks,
                                                 const Launch& how);

bool wgmma_kernels_compiled() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, wgmma_product_kernel<Packing::kQ4, 64>), "wgmma_product");
  return attributes.ptxVersion >= 90;
}

}  // namespace carat::cuda
