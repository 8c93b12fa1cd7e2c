// Which build of the token kernel runs.
#include "exec/cuda/kernels/token.h"

#include <iterator>

namespace carat::cuda {

// token_*.cu
void run_token_q8(const TokenJob& job, uint32_t blocks, const Launch& how);
void run_token_q4(const TokenJob& job, uint32_t blocks, const Launch& how);
void run_token_q4k(const TokenJob& job, uint32_t blocks, const Launch& how);
void run_token_q4_experts(const TokenJob& job, uint32_t blocks, const Launch& how);
void run_token_any(const TokenJob& job, uint32_t blocks, const Launch& how);

void run_token(const TokenJob& job, const TokenBuild& needs, uint32_t blocks, const Launch& how) {
  // As in kTokenBuilds.
  constexpr decltype(&run_token_any) kRun[] = {run_token_q8, run_token_q4, run_token_q4k, run_token_q4_experts,
                                               run_token_any};
  static_assert(std::size(kRun) == std::size(kTokenBuilds));
  kRun[token_build(needs)](job, blocks, how);
}

}  // namespace carat::cuda
