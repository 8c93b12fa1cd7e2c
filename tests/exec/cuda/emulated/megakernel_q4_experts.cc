#include "exec/cuda/emulated/megakernel_body.h"

namespace carat::cuda::emulated {

template void run_megakernel_build<megakernel_build(kMegakernelQ4Experts)>(const MegakernelJob& job, uint32_t blocks,
                                                                           uint64_t seed);

}  // namespace carat::cuda::emulated
