#include "exec/cuda/kernels/matvec.cuh"

namespace carat::cuda {

void matvec_8bit(const MatvecJob& job, const MatvecGrid& grid, const Launch& how) {
  launch_matvec<DotQ8>(job, grid, how);
}

}  // namespace carat::cuda
