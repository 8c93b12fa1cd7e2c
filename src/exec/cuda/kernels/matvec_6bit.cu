#include "exec/cuda/kernels/matvec.cuh"

namespace carat::cuda {

void matvec_6bit(const MatvecJob& job, uint32_t sm_count, const Launch& how) {
  switch (job.part[0].weights.packing) {
    case Packing::kQ5K:
      return launch_matvec<DotQ5K>(job, sm_count, how);
    default:
      return launch_matvec<DotQ6K>(job, sm_count, how);
  }
}

}  // namespace carat::cuda
