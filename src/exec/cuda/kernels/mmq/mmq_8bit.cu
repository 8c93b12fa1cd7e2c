#include "exec/cuda/kernels/mmq/mmq.cuh"

namespace carat::cuda {

template void launch_mmq_packing<Packing::kQ8>(const MmqProduct& job, uint32_t tile_rows, const LaunchConfig& launch);

}  // namespace carat::cuda
