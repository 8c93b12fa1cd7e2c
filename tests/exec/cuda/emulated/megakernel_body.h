#pragma once

#include "exec/cuda/emulated/megakernel.h"
// Structures without a name in unions, which nvcc has nothing against.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "exec/cuda/kernels/megakernel/kernel.cuh"
#pragma GCC diagnostic pop

namespace carat::cuda::emulated {

template <size_t kIndex>
void run_megakernel_build(const MegakernelJob& job, uint32_t blocks, uint64_t seed) {
  run({blocks, kMegakernelThreads + kMegakernelLoaders, blocks, job.memory.total(job.d)}, seed,
      [&] { megakernel_kernel<kIndex>(job); });
}

}  // namespace carat::cuda::emulated
