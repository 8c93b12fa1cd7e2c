#include "exec/cuda/kernels/batch_product.cuh"

namespace carat::cuda {

void batch_product_4bit(const BatchJob& job, const BatchCut& cut, const BatchScratch& scratch, const Launch& how) {
  if (job.part[0].weights.packing == Packing::kQ4) return launch_batch_product<FragmentsQ4>(job, cut, scratch, how);
  launch_batch_product<FragmentsQ4K>(job, cut, scratch, how);
}

}  // namespace carat::cuda
