#include "exec/cuda/kernels/attention/decode/attention_step.cuh"

namespace carat::cuda {

template <typename Projection>
void launch_step_512(const DecodeArguments& arguments, const QkvPost& job, const Projection* projections, uint32_t rows,
                     uint32_t splits, const LaunchConfig& launch) {
  launch_decode_tile<Decode512>(arguments, ProjectedHeads<Projection>{job, projections}, rows, splits, launch);
}
template void launch_step_512(const DecodeArguments&, const QkvPost&, const float*, uint32_t, uint32_t,
                              const LaunchConfig&);
template void launch_step_512(const DecodeArguments&, const QkvPost&, const __nv_bfloat16*, uint32_t, uint32_t,
                              const LaunchConfig&);

}  // namespace carat::cuda
