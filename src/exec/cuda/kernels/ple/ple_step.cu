// Kernels and launcher of the end of a layer by clusters (ple_step.cuh).
#include "exec/cuda/kernels/ple/ple_step.cuh"

#include <stdexcept>

namespace carat::cuda {
namespace {

// Clusters came with compute capability 9.0; the plan chooses this kernel nowhere else.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CARAT_PLE_CLUSTER __cluster_dims__(kPleBlocks, 1, 1)
#else
#define CARAT_PLE_CLUSTER
#endif

template <typename Fragments, typename Delta, typename Out>
__global__ void CARAT_PLE_CLUSTER __launch_bounds__(kPleThreads, 1)
    ple_step_kernel(const __grid_constant__ PleStep<Delta> job, uint32_t rows, const __grid_constant__ Out out) {
#if defined(CARAT_SM90)
  CARAT_BLOCK_MEMORY(16, unsigned char, memory);
  const PleBlock<Fragments, Delta> block{job,
                                         *reinterpret_cast<PleShared*>(memory),
                                         rows,
                                         blockIdx.x / kPleBlocks * kPleBlocks,
                                         blockIdx.x % kPleBlocks,
                                         threadIdx.x / 32,
                                         threadIdx.x % 32,
                                         job.gate.steps,
                                         job.gate.rows / 16 / kPleBlocks,
                                         job.proj.rows / 16 / kPleBlocks};
  block.run(out);
#else
  __trap();
#endif
}

template <typename Fragments, typename Delta, typename Out>
void start(const PleStep<Delta>& job, uint32_t rows, const Out& out, const LaunchConfig& launch) {
  const auto kernel = ple_step_kernel<Fragments, Delta, Out>;
  allow_shared_memory(kernel, sizeof(PleShared), "ple_step");
  const uint32_t clusters = (rows + kPleBlocks - 1) / kPleBlocks;
  launch_kernel_clusters("ple_step", kernel, kPleBlocks, dim3(clusters * kPleBlocks), dim3(kPleThreads),
                         sizeof(PleShared), launch, job, rows, out);
}

template <typename Delta, typename Out>
void start_packing(const PleStep<Delta>& job, uint32_t rows, const Out& out, const LaunchConfig& launch) {
  const ResidualNormOf<Delta>& a = job.residual;
  const bool complete = a.x != nullptr && a.delta != nullptr && a.delta_norm != nullptr && a.x_out != nullptr &&
                        a.next_norm != nullptr && a.experts == nullptr && job.post_norm != nullptr &&
                        job.factors != nullptr;
  if (!complete || rows == 0 || job.gate.cols != a.d || !ple_step_reads(job.gate, job.proj)) {
    throw std::logic_error("internal check failed: ple_step job");
  }
  switch (job.gate.packing) {
    case Packing::kQ8:
      return start<FragmentsQ8>(job, rows, out, launch);
    case Packing::kQ4:
      return start<FragmentsQ4>(job, rows, out, launch);
    case Packing::kQ4K:
      return start<FragmentsQ4K>(job, rows, out, launch);
    case Packing::kQ5K:
      return start<FragmentsQ5K>(job, rows, out, launch);
    case Packing::kQ6K:
      return start<FragmentsQ6K>(job, rows, out, launch);
    default:
      throw std::logic_error("internal check failed: ple_step of floats");
  }
}

}  // namespace

void ple_step(const PleStep<float>& job, uint32_t rows, const SkinnyRows& out, const LaunchConfig& launch) {
  if (!(job.bound > 0.0f)) throw std::logic_error("internal check failed: ple_step without a bound");
  start_packing(job, rows, out, launch);
}
void ple_step(const PleStep<__nv_bfloat16>& job, uint32_t rows, __nv_bfloat16* out, const LaunchConfig& launch) {
  start_packing(job, rows, out, launch);
}

}  // namespace carat::cuda
