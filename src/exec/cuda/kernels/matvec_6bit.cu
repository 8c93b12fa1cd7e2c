#include "exec/cuda/kernels/matvec.cuh"

namespace carat::cuda {

void matvec_6bit(const MatvecJob& job, const MatvecGrid& grid, const Launch& how) {
  switch (job.part[0].weights.packing) {
    case Packing::kQ5K:
      return launch_matvec<DotQ5K>(job, grid, how);
    default:
      return launch_matvec<DotQ6K>(job, grid, how);
  }
}

}  // namespace carat::cuda
