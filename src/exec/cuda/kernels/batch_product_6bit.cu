#include "exec/cuda/kernels/batch_product.cuh"

namespace carat::cuda {

void batch_product_6bit(const BatchJob& job, const BatchCut& cut, const BatchScratch& scratch, const Launch& how) {
  if (job.part[0].weights.packing == Packing::kQ5K) return launch_batch_product<FragmentsQ5K>(job, cut, scratch, how);
  launch_batch_product<FragmentsQ6K>(job, cut, scratch, how);
}

}  // namespace carat::cuda
