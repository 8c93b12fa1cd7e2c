#include "exec/cuda/kernels/skinny/skinny_gemm.cuh"

namespace carat::cuda {

void skinny_gemm_float(const SkinnyJob& job, const SkinnyCut& cut, const SkinnyScratch& scratch,
                       const LaunchConfig& launch) {
  switch (job.part[0].weights.packing) {
    case Packing::kF16:
      return launch_skinny_gemm<FragmentsF16>(job, cut, scratch, launch);
    case Packing::kBF16:
      return launch_skinny_gemm<FragmentsBF16>(job, cut, scratch, launch);
    default:
      return launch_skinny_gemm<FragmentsF32>(job, cut, scratch, launch);
  }
}

}  // namespace carat::cuda
