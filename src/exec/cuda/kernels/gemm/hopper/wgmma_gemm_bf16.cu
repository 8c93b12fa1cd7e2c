#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.cuh"

namespace carat::cuda {

template void launch_wgmma_gemm<Packing::kBF16>(const WgmmaJob& job, uint32_t width, uint32_t blocks,
                                                const LaunchConfig& launch);

}  // namespace carat::cuda
