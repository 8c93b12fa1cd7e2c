#include "exec/cuda/kernels/gemv/gemv.cuh"

namespace carat::cuda {

void gemv_8bit(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch) {
  launch_gemv<DotQ8>(job, sm_count, launch);
}

}  // namespace carat::cuda
