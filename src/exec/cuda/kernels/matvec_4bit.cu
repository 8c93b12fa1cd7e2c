#include "exec/cuda/kernels/matvec.cuh"

namespace carat::cuda {

void matvec_4bit(const MatvecJob& job, uint32_t sm_count, const Launch& how) {
  switch (job.part[0].weights.packing) {
    case Packing::kQ4:
      return launch_matvec<DotQ4>(job, sm_count, how);
    default:
      return launch_matvec<DotQ4K>(job, sm_count, how);
  }
}

}  // namespace carat::cuda
