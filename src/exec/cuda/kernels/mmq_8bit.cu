#include "exec/cuda/kernels/mmq.cuh"

namespace carat::cuda {

template void launch_mmq_packing<Packing::kQ8>(const MmqProduct& job, uint32_t tile_rows, const Launch& how);

}  // namespace carat::cuda
