// The token kernel for all models that have none of their own.
#include "exec/cuda/kernels/megakernel/kernel.cuh"

namespace carat::cuda {

template void run_megakernel_build<megakernel_build(kMegakernelAny)>(const MegakernelJob& job, uint32_t blocks,
                                                                     const LaunchConfig& launch);

}  // namespace carat::cuda
