#include "exec/cuda/kernels/skinny/skinny_gemm.cuh"

namespace carat::cuda {

void skinny_gemm_4bit(const SkinnyJob& job, const SkinnyCut& cut, const SkinnyScratch& scratch,
                      const LaunchConfig& launch) {
  if (job.part[0].weights.packing == Packing::kQ4) return launch_skinny_gemm<FragmentsQ4>(job, cut, scratch, launch);
  launch_skinny_gemm<FragmentsQ4K>(job, cut, scratch, launch);
}

}  // namespace carat::cuda
