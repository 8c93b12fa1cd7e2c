#include "exec/cuda/kernels/matvec.cuh"

namespace carat::cuda {

void matvec_float(const MatvecJob& job, uint32_t sm_count, const Launch& how) {
  switch (job.part[0].weights.packing) {
    case Packing::kF16:
      return launch_matvec<DotF16>(job, sm_count, how);
    case Packing::kBF16:
      return launch_matvec<DotBF16>(job, sm_count, how);
    default:
      return launch_matvec<DotF32>(job, sm_count, how);
  }
}

}  // namespace carat::cuda
