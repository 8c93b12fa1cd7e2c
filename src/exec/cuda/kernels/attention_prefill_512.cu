#include "exec/cuda/kernels/attention_prefill.cuh"

namespace carat::cuda {

void launch_prefill_512(const PrefillArguments& arguments, bool wide, const Launch& how) {
  if (wide) {
    launch_prefill_tile<Prefill512Wide>(arguments, how);
  } else {
    launch_prefill_tile<Prefill512>(arguments, how);
  }
}

}  // namespace carat::cuda
