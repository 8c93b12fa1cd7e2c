#include "exec/cuda/kernels/batch_product.cuh"

namespace carat::cuda {

void batch_product_float(const BatchJob& job, const BatchCut& cut, const BatchScratch& scratch, const Launch& how) {
  switch (job.part[0].weights.packing) {
    case Packing::kF16:
      return launch_batch_product<FragmentsF16>(job, cut, scratch, how);
    case Packing::kBF16:
      return launch_batch_product<FragmentsBF16>(job, cut, scratch, how);
    default:
      return launch_batch_product<FragmentsF32>(job, cut, scratch, how);
  }
}

}  // namespace carat::cuda
