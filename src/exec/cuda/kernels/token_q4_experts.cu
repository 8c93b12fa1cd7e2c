// The token kernel for mixtures of experts in Q4_0.
#include "exec/cuda/kernels/token_kernel.cuh"

namespace carat::cuda {

template void run_token_build<token_build(kTokenQ4Experts)>(const TokenJob& job, uint32_t blocks, const Launch& how);

}  // namespace carat::cuda
