#include "exec/cuda/kernels/gemv/gemv.cuh"

namespace carat::cuda {

void gemv_float(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch) {
  switch (job.part[0].weights.packing) {
    case Packing::kF16:
      return launch_gemv<DotF16>(job, sm_count, launch);
    case Packing::kBF16:
      return launch_gemv<DotBF16>(job, sm_count, launch);
    default:
      return launch_gemv<DotF32>(job, sm_count, launch);
  }
}

}  // namespace carat::cuda
