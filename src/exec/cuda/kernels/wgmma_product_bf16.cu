#include "exec/cuda/kernels/wgmma_product.cuh"

namespace carat::cuda {

template void launch_wgmma_product<Packing::kBF16>(const WgmmaJob& job, uint32_t width, uint32_t blocks,
                                                   const Launch& how);

}  // namespace carat::cuda
