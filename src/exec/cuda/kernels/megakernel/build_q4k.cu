// The token kernel for models in Q4_K.
#include "exec/cuda/kernels/megakernel/kernel.cuh"

namespace carat::cuda {

template void run_megakernel_build<megakernel_build(kMegakernelQ4K)>(const MegakernelJob& job, uint32_t blocks,
                                                                     const LaunchConfig& launch);

}  // namespace carat::cuda
