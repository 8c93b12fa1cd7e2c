#pragma once

#include "exec/cuda/emulated/token_kernel.h"
// Structures without a name in unions, which nvcc has nothing against.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "exec/cuda/kernels/token_kernel.cuh"
#pragma GCC diagnostic pop

namespace carat::cuda::emulated {

template <size_t kIndex>
void run_token_build(const TokenJob& job, uint32_t blocks, uint64_t seed) {
  run({blocks, kTokenThreads + kTokenLoaders, blocks, job.memory.total(job.d)}, seed,
      [&] { token_kernel<kIndex>(job); });
}

}  // namespace carat::cuda::emulated
