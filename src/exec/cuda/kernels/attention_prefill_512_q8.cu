#include "exec/cuda/kernels/attention_prefill.cuh"

namespace carat::cuda {

void launch_prefill_512_q8(const PrefillArguments& arguments, bool wide, const Launch& how) {
  if (wide) {
    launch_prefill_tile<Prefill512WideQ8>(arguments, how);
  } else {
    launch_prefill_tile<Prefill512Q8>(arguments, how);
  }
}

}  // namespace carat::cuda
