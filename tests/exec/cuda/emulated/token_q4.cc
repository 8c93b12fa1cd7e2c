#include "exec/cuda/emulated/token_kernel_body.h"

namespace carat::cuda::emulated {

template void run_token_build<token_build(kTokenQ4)>(const TokenJob& job, uint32_t blocks, uint64_t seed);

}  // namespace carat::cuda::emulated
