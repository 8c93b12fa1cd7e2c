#include "exec/cuda/kernels/gemv/gemv.cuh"

namespace carat::cuda {

void gemv_4bit(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch) {
  switch (job.part[0].weights.packing) {
    case Packing::kQ4:
      return launch_gemv<DotQ4>(job, sm_count, launch);
    default:
      return launch_gemv<DotQ4K>(job, sm_count, launch);
  }
}

}  // namespace carat::cuda
