// The token kernel for models in Q8_0.
#include "exec/cuda/kernels/megakernel/kernel.cuh"

namespace carat::cuda {

template void run_megakernel_build<megakernel_build(kMegakernelQ8)>(const MegakernelJob& job, uint32_t blocks,
                                                                    const LaunchConfig& launch);

}  // namespace carat::cuda
