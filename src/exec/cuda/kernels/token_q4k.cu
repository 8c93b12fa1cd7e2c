// The token kernel for models in Q4_K.
#include "exec/cuda/kernels/token_kernel.cuh"

namespace carat::cuda {

template void run_token_build<token_build(kTokenQ4K)>(const TokenJob& job, uint32_t blocks, const Launch& how);

}  // namespace carat::cuda
