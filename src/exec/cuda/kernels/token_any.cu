// The token kernel for all models that have none of their own.
#include "exec/cuda/kernels/token_kernel.cuh"

namespace carat::cuda {

void run_token_any(const TokenJob& job, uint32_t blocks, const Launch& how) {
  launch_token<kTokenAny>(job, blocks, how);
}

}  // namespace carat::cuda
