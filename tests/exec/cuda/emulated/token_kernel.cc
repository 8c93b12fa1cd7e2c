#include "exec/cuda/emulated/token_kernel.h"

#include <iterator>
#include <utility>

namespace carat::cuda::emulated {
namespace {

using Run = void (*)(const TokenJob& job, uint32_t blocks, uint64_t seed);

template <size_t... kIndexes>
Run run_of(size_t build, std::index_sequence<kIndexes...>) {
  constexpr Run kRun[] = {run_token_build<kIndexes>...};
  return kRun[build];
}

}  // namespace

void run_token(const TokenJob& job, const TokenBuild& needs, uint32_t blocks, uint64_t seed) {
  run_of(token_build(needs), std::make_index_sequence<std::size(kTokenBuilds)>())(job, blocks, seed);
}

}  // namespace carat::cuda::emulated
