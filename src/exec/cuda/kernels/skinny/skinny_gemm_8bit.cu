#include "exec/cuda/kernels/skinny/skinny_gemm.cuh"

namespace carat::cuda {

void skinny_gemm_8bit(const SkinnyJob& job, const SkinnyCut& cut, const SkinnyScratch& scratch,
                      const LaunchConfig& launch) {
  launch_skinny_gemm<FragmentsQ8>(job, cut, scratch, launch);
}

}  // namespace carat::cuda
