// The token kernel for models in Q8_0.
#include "exec/cuda/kernels/token_kernel.cuh"

namespace carat::cuda {

void run_token_q8(const TokenJob& job, uint32_t blocks, const Launch& how) { launch_token<kTokenQ8>(job, blocks, how); }

}  // namespace carat::cuda
