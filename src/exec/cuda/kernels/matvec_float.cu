#include "exec/cuda/kernels/matvec.cuh"

namespace carat::cuda {

void matvec_float(const MatvecJob& job, const MatvecGrid& grid, const Launch& how) {
  switch (job.part[0].weights.packing) {
    case Packing::kF16:
      return launch_matvec<DotF16>(job, grid, how);
    case Packing::kBF16:
      return launch_matvec<DotBF16>(job, grid, how);
    default:
      return launch_matvec<DotF32>(job, grid, how);
  }
}

}  // namespace carat::cuda
