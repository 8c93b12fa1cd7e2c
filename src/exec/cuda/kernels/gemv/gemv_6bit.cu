#include "exec/cuda/kernels/gemv/gemv.cuh"

namespace carat::cuda {

void gemv_6bit(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch) {
  switch (job.part[0].weights.packing) {
    case Packing::kQ5K:
      return launch_gemv<DotQ5K>(job, sm_count, launch);
    default:
      return launch_gemv<DotQ6K>(job, sm_count, launch);
  }
}

}  // namespace carat::cuda
