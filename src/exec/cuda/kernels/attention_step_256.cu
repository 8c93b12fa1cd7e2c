#include "exec/cuda/kernels/attention_step.cuh"

namespace carat::cuda {

template <typename Projection>
void launch_step_256(const DecodeArguments& arguments, const QkvPost& job, const Projection* projections, uint32_t rows,
                     uint32_t splits, const Launch& how) {
  launch_decode_tile<Decode256>(arguments, ProjectedHeads<Projection>{job, projections}, rows, splits, how);
}
template void launch_step_256(const DecodeArguments&, const QkvPost&, const float*, uint32_t, uint32_t, const Launch&);
template void launch_step_256(const DecodeArguments&, const QkvPost&, const __nv_bfloat16*, uint32_t, uint32_t,
                              const Launch&);

}  // namespace carat::cuda
