#include "exec/cuda/emulated/megakernel.h"

#include <iterator>
#include <utility>

namespace carat::cuda::emulated {
namespace {

using Run = void (*)(const MegakernelJob& job, uint32_t blocks, uint64_t seed);

template <size_t... kIndexes>
Run run_of(size_t build, std::index_sequence<kIndexes...>) {
  constexpr Run kRun[] = {run_megakernel_build<kIndexes>...};
  return kRun[build];
}

}  // namespace

void run_megakernel(const MegakernelJob& job, const MegakernelBuild& needs, uint32_t blocks, uint64_t seed) {
  run_of(megakernel_build(needs), std::make_index_sequence<std::size(kMegakernelBuilds)>())(job, blocks, seed);
}

}  // namespace carat::cuda::emulated
