#include "exec/cuda/kernels/attention/prefill/attention_prefill.cuh"

namespace carat::cuda {

void launch_prefill_256_q8(const PrefillArguments& arguments, bool wide, const LaunchConfig& launch) {
  if (wide) {
    launch_prefill_tile<Prefill256WideQ8>(arguments, launch);
  } else {
    launch_prefill_tile<Prefill256Q8>(arguments, launch);
  }
}

}  // namespace carat::cuda
