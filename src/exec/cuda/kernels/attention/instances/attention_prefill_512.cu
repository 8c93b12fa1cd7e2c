#include "exec/cuda/kernels/attention/prefill/attention_prefill.cuh"

namespace carat::cuda {

void launch_prefill_512(const PrefillArguments& arguments, bool wide, const LaunchConfig& launch) {
  if (wide) {
    launch_prefill_tile<Prefill512Wide>(arguments, launch);
  } else {
    launch_prefill_tile<Prefill512>(arguments, launch);
  }
}

}  // namespace carat::cuda
