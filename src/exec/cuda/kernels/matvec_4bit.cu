#include "exec/cuda/kernels/matvec.cuh"

namespace carat::cuda {

void matvec_4bit(const MatvecJob& job, const MatvecGrid& grid, const Launch& how) {
  switch (job.part[0].weights.packing) {
    case Packing::kQ4:
      return launch_matvec<DotQ4>(job, grid, how);
    default:
      return launch_matvec<DotQ4K>(job, grid, how);
  }
}

}  // namespace carat::cuda
