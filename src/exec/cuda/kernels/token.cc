// Which build of the token kernel runs.
#include "exec/cuda/kernels/token.h"

#include <iterator>
#include <utility>

namespace carat::cuda {
namespace {

using Run = void (*)(const TokenJob& job, uint32_t blocks, const Launch& how);

template <size_t... kIndexes>
Run run_of(size_t build, std::index_sequence<kIndexes...>) {
  constexpr Run kRun[] = {run_token_build<kIndexes>...};
  return kRun[build];
}

}  // namespace

void run_token(const TokenJob& job, const TokenBuild& needs, uint32_t blocks, const Launch& how) {
  run_of(token_build(needs), std::make_index_sequence<std::size(kTokenBuilds)>())(job, blocks, how);
}

}  // namespace carat::cuda
