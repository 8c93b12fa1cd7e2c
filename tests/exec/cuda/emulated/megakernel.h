#pragma once

// The token kernel on the emulated machine.
#include "exec/cuda/kernels/megakernel/megakernel.h"

namespace carat::cuda::emulated {

// Build kIndex of kMegakernelBuilds, each compiled in a file of its own, as for the card. Declared in
// megakernel_kernel.cc.
template <size_t kIndex>
void run_megakernel_build(const MegakernelJob& job, uint32_t blocks, uint64_t seed);

// By the build that covers the needs of the model.
void run_megakernel(const MegakernelJob& job, const MegakernelBuild& needs, uint32_t blocks, uint64_t seed);

}  // namespace carat::cuda::emulated
