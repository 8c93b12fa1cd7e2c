#include "exec/cuda/kernels/matvec.cuh"

namespace carat::cuda {

void matvec_rows_4(const MatvecJob& job, const MatvecGrid& grid, uint32_t row_per_lane, size_t shared_bytes,
                   const Launch& how) {
  if (row_per_lane == 1) {
    launch_matvec<4, 1>(job, grid, shared_bytes, how);
  } else {
    launch_matvec<4, 2>(job, grid, shared_bytes, how);
  }
}

}  // namespace carat::cuda
