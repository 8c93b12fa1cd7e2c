#include "exec/cuda/kernels/matvec.cuh"

namespace carat::cuda {

void matvec_8bit(const MatvecJob& job, uint32_t sm_count, const Launch& how) {
  launch_matvec<DotQ8>(job, sm_count, how);
}

}  // namespace carat::cuda
