// Host side of the matrix-vector products, and the kernels that quantise rows on their own.
#include "exec/cuda/kernels/gemv/gemv.cuh"

#include <algorithm>
#include <stdexcept>

namespace carat::cuda {
namespace {

template <int kPieces>
__global__ void __launch_bounds__(kRowThreads)
    quantise_residual_norm_kernel(const __grid_constant__ ResidualNorm residual,
                                  const __grid_constant__ QuantisedRows out, uint32_t steps) {
  CARAT_BLOCK_MEMORY(16, float, row_memory);
  __shared__ float scratch[kSumScratch];
  wait_for_predecessor();
  release_successor();
  residual_norm_pieces<kPieces>(residual, blockIdx.x, row_memory, scratch);
  const uint64_t row = blockIdx.x;
  quantise_row(row_memory, residual.d, steps, out.words + row * steps * kStepWords, out.meta + row * steps * 8,
               out.values == nullptr ? nullptr : out.values + row * steps * kStep);
}

__global__ void __launch_bounds__(kRowThreads)
    quantise_floats_kernel(const float* values, uint32_t cols, uint32_t leading,
                           const __grid_constant__ QuantisedRows out, uint32_t steps) {
  wait_for_predecessor();
  release_successor();
  const uint64_t row = blockIdx.x;
  quantise_row(values + row * leading, cols, steps, out.words + row * steps * kStepWords, out.meta + row * steps * 8,
               out.values == nullptr ? nullptr : out.values + row * steps * kStep);
}

__global__ void __launch_bounds__(kRowThreads)
    quantise_geglu_kernel(const float* gate_up, uint32_t F, const __grid_constant__ QuantisedRows out, uint32_t steps) {
  wait_for_predecessor();
  release_successor();
  const uint64_t row = blockIdx.x;
  const float* gate = gate_up + row * 2 * F;
  for (uint32_t c = 4 * threadIdx.x; c < steps * kStep; c += kSlab) {
    const float4 g = load4(gate, c, F), u = load4(gate + F, c, F);
    const float4 v = make_float4(gelu(g.x) * u.x, gelu(g.y) * u.y, gelu(g.z) * u.z, gelu(g.w) * u.w);
    quantise4(v, c, out.words + row * steps * kStepWords, out.meta + row * steps * kStepBlocks);
    if (out.values != nullptr) *reinterpret_cast<float4*>(out.values + row * steps * kStep + c) = v;
  }
}

void check_job(const GemvJob& job) {
  bool good = job.rows >= 1 && job.rows <= kGemvRows && job.parts >= 1 && job.parts <= kGemvParts;
  for (uint32_t p = 0; good && p < job.parts; ++p) good = job.part[p].weights.cols == job.part[0].weights.cols;
  if (good && job.output == GemvOutput::kGeglu) {
    good = job.parts == 2 && job.part[0].weights.packing == job.part[1].weights.packing &&
           job.part[0].weights.rows == job.part[1].weights.rows && job.rows <= 8;
  }
  if (!good) throw std::logic_error("internal check failed: matvec job");
}

}  // namespace

uint32_t gemv_blocks(const GemvJob& job, uint32_t sm_count) {
  uint32_t groups = 0;
  for (uint32_t p = 0; p < job.parts; ++p) groups += (job.part[p].weights.rows + 3) / 4;
  if (job.output == GemvOutput::kGeglu) groups = (job.part[0].weights.rows + 15) / 16;
  return std::min(sm_count, groups);
}

uint32_t gemv_max_rows(uint32_t cols, bool float_weights, uint32_t shared_memory) {
  constexpr uint32_t kMostUnits = 64;  // of GEGLU results a block: far more than any layer gives it
  for (uint32_t rows = kGemvRows; rows > 1; rows /= 2) {
    if (gemv_shared_bytes(rows, steps_of(cols), float_weights, kMostUnits) <= shared_memory) return rows;
  }
  return 1;
}

void gemv(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch) {
  check_job(job);
  const Packing packing = job.part[0].weights.packing;
  for (uint32_t p = 1; p < job.parts; ++p) {
    if (job.part[p].weights.packing == packing) continue;
    // Files mix formats within a group: the parts up to here in one launch, the others after it.
    GemvJob first = job, rest = job;
    first.parts = p;
    rest.parts = job.parts - p;
    std::copy(job.part + p, job.part + job.parts, rest.part);
    gemv(first, sm_count, launch);
    gemv(rest, sm_count, launch);
    return;
  }
  switch (packing) {
    case Packing::kQ8:
      return gemv_8bit(job, sm_count, launch);
    case Packing::kQ4:
    case Packing::kQ4K:
      return gemv_4bit(job, sm_count, launch);
    case Packing::kQ5K:
    case Packing::kQ6K:
      return gemv_6bit(job, sm_count, launch);
    default:
      return gemv_float(job, sm_count, launch);
  }
}

void quantise_residual_norm(const ResidualNorm& residual, uint32_t rows, const QuantisedRows& out,
                            const LaunchConfig& launch) {
  const uint32_t steps = steps_of(residual.d);
  with_row_pieces(residual.d, [&](auto pieces) {
    launch_kernel("quantise_residual_norm", quantise_residual_norm_kernel<pieces()>, dim3(rows), dim3(kRowThreads),
                  static_cast<size_t>(steps) * kStep * 4, launch, residual, out, steps);
  });
}

void quantise_geglu(const float* gate_up, uint32_t rows, uint32_t F, const QuantisedRows& out,
                    const LaunchConfig& launch) {
  launch_kernel("quantise_geglu", quantise_geglu_kernel, dim3(rows), dim3(kRowThreads), 0, launch, gate_up, F, out,
                steps_of(F));
}

void quantise_floats(const float* values, uint32_t rows, uint32_t cols, uint32_t leading, const QuantisedRows& out,
                     const LaunchConfig& launch) {
  launch_kernel("quantise_floats", quantise_floats_kernel, dim3(rows), dim3(kRowThreads), 0, launch, values, cols,
                leading, out, steps_of(cols));
}

}  // namespace carat::cuda
