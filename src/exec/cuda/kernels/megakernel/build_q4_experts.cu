// The token kernel for mixtures of experts in Q4_0.
#include "exec/cuda/kernels/megakernel/kernel.cuh"

namespace carat::cuda {

template void run_megakernel_build<megakernel_build(kMegakernelQ4Experts)>(const MegakernelJob& job, uint32_t blocks,
                                                                           const LaunchConfig& launch);

}  // namespace carat::cuda
