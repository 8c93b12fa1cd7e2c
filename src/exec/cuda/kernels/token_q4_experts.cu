// The token kernel for mixtures of experts in Q4_0.
#include "exec/cuda/kernels/token_kernel.cuh"

namespace carat::cuda {

void run_token_q4_experts(const TokenJob& job, uint32_t blocks, const Launch& how) {
  launch_token<kTokenQ4Experts>(job, blocks, how);
}

}  // namespace carat::cuda
