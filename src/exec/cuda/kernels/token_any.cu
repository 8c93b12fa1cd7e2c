// The token kernel for all models that have none of their own.
#include "exec/cuda/kernels/token_kernel.cuh"

namespace carat::cuda {

template void run_token_build<token_build(kTokenAny)>(const TokenJob& job, uint32_t blocks, const Launch& how);

}  // namespace carat::cuda
