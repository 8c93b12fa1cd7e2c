#include "exec/cuda/kernels/batch_product.cuh"

namespace carat::cuda {

void batch_product_8bit(const BatchJob& job, const BatchCut& cut, const BatchScratch& scratch, const Launch& how) {
  launch_batch_product<FragmentsQ8>(job, cut, scratch, how);
}

}  // namespace carat::cuda
