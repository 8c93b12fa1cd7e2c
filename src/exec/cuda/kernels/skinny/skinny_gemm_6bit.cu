#include "exec/cuda/kernels/skinny/skinny_gemm.cuh"

namespace carat::cuda {

void skinny_gemm_6bit(const SkinnyJob& job, const SkinnyCut& cut, const SkinnyScratch& scratch,
                      const LaunchConfig& launch) {
  if (job.part[0].weights.packing == Packing::kQ5K) return launch_skinny_gemm<FragmentsQ5K>(job, cut, scratch, launch);
  launch_skinny_gemm<FragmentsQ6K>(job, cut, scratch, launch);
}

}  // namespace carat::cuda
