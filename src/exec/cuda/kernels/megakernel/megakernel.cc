// Which build of the token kernel runs.
#include "exec/cuda/kernels/megakernel/megakernel.h"

#include <iterator>
#include <utility>

namespace carat::cuda {
namespace {

using Run = void (*)(const MegakernelJob& job, uint32_t blocks, const LaunchConfig& launch);

template <size_t... kIndexes>
Run run_of(size_t build, std::index_sequence<kIndexes...>) {
  constexpr Run kRun[] = {run_megakernel_build<kIndexes>...};
  return kRun[build];
}

}  // namespace

void run_megakernel(const MegakernelJob& job, const MegakernelBuild& needs, uint32_t blocks,
                    const LaunchConfig& launch) {
  run_of(megakernel_build(needs), std::make_index_sequence<std::size(kMegakernelBuilds)>())(job, blocks, launch);
}

}  // namespace carat::cuda
