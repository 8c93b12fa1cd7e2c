#pragma once

// The token kernel on the emulated machine.
#include "exec/cuda/kernels/token.h"

namespace carat::cuda::emulated {

// Build kIndex of kTokenBuilds, each compiled in a file of its own, as for the card. Declared in token_kernel.cc.
template <size_t kIndex>
void run_token_build(const TokenJob& job, uint32_t blocks, uint64_t seed);

// By the build that covers the needs of the model.
void run_token(const TokenJob& job, const TokenBuild& needs, uint32_t blocks, uint64_t seed);

}  // namespace carat::cuda::emulated
