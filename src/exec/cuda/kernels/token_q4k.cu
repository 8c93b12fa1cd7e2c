// The token kernel for models in Q4_K.
#include "exec/cuda/kernels/token_kernel.cuh"

namespace carat::cuda {

void run_token_q4k(const TokenJob& job, uint32_t blocks, const Launch& how) {
  launch_token<kTokenQ4K>(job, blocks, how);
}

}  // namespace carat::cuda
