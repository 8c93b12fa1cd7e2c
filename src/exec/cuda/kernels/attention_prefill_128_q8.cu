#include "exec/cuda/kernels/attention_prefill.cuh"

namespace carat::cuda {

void launch_prefill_128_q8(const PrefillArguments& arguments, const Launch& how) {
  launch_prefill_tile<Prefill128Q8>(arguments, how);
}

}  // namespace carat::cuda
