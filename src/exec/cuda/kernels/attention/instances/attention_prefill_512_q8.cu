#include "exec/cuda/kernels/attention/prefill/attention_prefill.cuh"

namespace carat::cuda {

void launch_prefill_512_q8(const PrefillArguments& arguments, bool wide, const LaunchConfig& launch) {
  if (wide) {
    launch_prefill_tile<Prefill512WideQ8>(arguments, launch);
  } else {
    launch_prefill_tile<Prefill512Q8>(arguments, launch);
  }
}

}  // namespace carat::cuda
