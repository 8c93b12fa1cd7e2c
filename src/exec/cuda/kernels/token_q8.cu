// The token kernel for models in Q8_0.
#include "exec/cuda/kernels/token_kernel.cuh"

namespace carat::cuda {

template void run_token_build<token_build(kTokenQ8)>(const TokenJob& job, uint32_t blocks, const Launch& how);

}  // namespace carat::cuda
