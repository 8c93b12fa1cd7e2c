#include "exec/cuda/kernels/attention_prefill.cuh"

namespace carat::cuda {

void launch_prefill_256_q8(const PrefillArguments& arguments, bool wide, const Launch& how) {
  if (wide) {
    launch_prefill_tile<Prefill256WideQ8>(arguments, how);
  } else {
    launch_prefill_tile<Prefill256Q8>(arguments, how);
  }
}

}  // namespace carat::cuda
