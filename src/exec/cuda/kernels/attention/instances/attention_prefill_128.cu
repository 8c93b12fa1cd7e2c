#include "exec/cuda/kernels/attention/prefill/attention_prefill.cuh"

namespace carat::cuda {

void launch_prefill_128(const PrefillArguments& arguments, const LaunchConfig& launch) {
  launch_prefill_tile<Prefill128>(arguments, launch);
}

}  // namespace carat::cuda
