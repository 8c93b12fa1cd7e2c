// Host side of the matrix-vector products: tile choice (a pure function of shapes and SM count) and dispatch, and the
// kernels that quantise rows on their own.
#include "exec/cuda/kernels/matvec.cuh"

#include <algorithm>
#include <stdexcept>

namespace carat::cuda {
namespace {

__global__ void __launch_bounds__(kRowThreads)
    quantise_residual_norm_kernel(const __grid_constant__ ResidualNorm residual,
                                  const __grid_constant__ QuantisedRows out, uint32_t steps) {
  extern __shared__ __align__(16) float row_memory[];
  __shared__ float scratch[8];
  wait_for_predecessor();
  release_successor();
  residual_norm_row(residual, blockIdx.x, true, row_memory, scratch);
  const uint64_t row = blockIdx.x;
  quantise_row(row_memory, residual.d, steps, out.words + row * steps * 64, out.meta + row * steps * 8,
               out.values == nullptr ? nullptr : out.values + row * steps * kStep);
}

__global__ void __launch_bounds__(kRowThreads)
    quantise_floats_kernel(const float* values, uint32_t cols, uint32_t leading,
                           const __grid_constant__ QuantisedRows out, uint32_t steps) {
  wait_for_predecessor();
  release_successor();
  const uint64_t row = blockIdx.x;
  quantise_row(values + row * leading, cols, steps, out.words + row * steps * 64, out.meta + row * steps * 8,
               out.values == nullptr ? nullptr : out.values + row * steps * kStep);
}

bool has_float_weights(const MatvecJob& job) {
  for (uint32_t p = 0; p < job.parts; ++p) {
    if (is_float_packing(job.part[p].weights.packing)) return true;
  }
  return false;
}

struct MatvecChoice {
  MatvecGrid grid{};
  uint32_t row_per_lane = 2;
};

// Enough blocks to fill every SM three times over where the matrix is large enough; smaller matrices are cut finer by
// splitting columns over the warps of a block.
MatvecChoice choose(const MatvecJob& job, uint32_t sm_count) {
  const uint32_t resident = 3 * sm_count;
  MatvecChoice choice;
  const auto tiles_with = [&](uint32_t split, uint32_t row_per_lane, uint32_t part) {
    const uint32_t rows_per_tile = 8 / split * 4 * row_per_lane;
    return (job.part[part].weights.rows + rows_per_tile - 1) / rows_per_tile;
  };
  if (job.output == MatvecOutput::kGeglu) {
    choice.grid.split = 1;
    const uint32_t blocks = std::min((job.part[0].weights.rows + 31) / 32, resident);
    choice.grid.first_block[0] = 0;
    for (uint32_t p = 1; p <= kMatvecParts; ++p) choice.grid.first_block[p] = blocks;
    return choice;
  }
  const uint32_t steps = job.part[0].weights.steps;
  const auto total_tiles = [&](uint32_t split, uint32_t row_per_lane) {
    uint32_t total = 0;
    for (uint32_t p = 0; p < job.parts; ++p) total += tiles_with(split, row_per_lane, p);
    return total;
  };
  uint32_t split = 1;
  if (total_tiles(1, 2) < resident) {
    choice.row_per_lane = 1;
    while (split < 8 && split * 2 <= steps && total_tiles(split, 1) < 2 * sm_count) split *= 2;
  }
  choice.grid.split = split;
  uint32_t next = 0;
  const uint32_t total = total_tiles(split, choice.row_per_lane);
  for (uint32_t p = 0; p < kMatvecParts; ++p) {
    choice.grid.first_block[p] = next;
    if (p >= job.parts) continue;
    const uint32_t tiles = tiles_with(split, choice.row_per_lane, p);
    // Many more tiles than the GPU can hold: a resident set of blocks loops, so that the pipeline never drains.
    const uint32_t share =
        total > 2 * resident
            ? std::max<uint32_t>(1, static_cast<uint32_t>(static_cast<uint64_t>(resident) * tiles / total))
            : tiles;
    next += std::min(tiles, share);
  }
  choice.grid.first_block[kMatvecParts] = next;
  return choice;
}

void check_job(const MatvecJob& job) {
  bool good = job.rows >= 1 && job.rows <= kMatvecRows && job.parts >= 1 && job.parts <= kMatvecParts;
  for (uint32_t p = 0; good && p < job.parts; ++p) good = job.part[p].weights.cols == job.part[0].weights.cols;
  if (good && job.output == MatvecOutput::kGeglu) {
    good = job.parts == 2 && job.part[0].weights.packing == job.part[1].weights.packing &&
           job.part[0].weights.rows == job.part[1].weights.rows && job.rows <= 8;
  }
  if (good && job.input == MatvecInput::kResidualNorm) good = job.residual.d == job.part[0].weights.cols;
  if (!good) throw std::logic_error("internal check failed: matvec job");
}

}  // namespace

uint32_t matvec_max_rows(uint32_t cols, bool float_weights, uint32_t shared_memory) {
  for (uint32_t rows = 8; rows > 1; rows /= 2) {
    if (matvec_shared_bytes(rows, 2, steps_of(cols), float_weights, MatvecInput::kResidualNorm) <= shared_memory)
      return rows;
  }
  return 1;
}

void matvec(const MatvecJob& job, uint32_t sm_count, const Launch& how) {
  check_job(job);
  const MatvecChoice choice = choose(job, sm_count);
  const uint32_t rows = job.rows <= 2 ? job.rows : job.rows <= 4 ? 4 : 8;  // buffers are padded to the variant's rows
  const size_t shared_bytes =
      matvec_shared_bytes(rows, choice.row_per_lane, job.part[0].weights.steps, has_float_weights(job), job.input);
  switch (rows) {
    case 1:
      return matvec_rows_1(job, choice.grid, choice.row_per_lane, shared_bytes, how);
    case 2:
      return matvec_rows_2(job, choice.grid, choice.row_per_lane, shared_bytes, how);
    case 4:
      return matvec_rows_4(job, choice.grid, choice.row_per_lane, shared_bytes, how);
    default:
      return matvec_rows_8(job, choice.grid, choice.row_per_lane, shared_bytes, how);
  }
}

void quantise_residual_norm(const ResidualNorm& residual, uint32_t rows, const QuantisedRows& out, const Launch& how) {
  const uint32_t steps = steps_of(residual.d);
  launch("quantise_residual_norm", quantise_residual_norm_kernel, dim3(rows), dim3(kRowThreads),
         static_cast<size_t>(steps) * kStep * 4, how, residual, out, steps);
}

void quantise_floats(const float* values, uint32_t rows, uint32_t cols, uint32_t leading, const QuantisedRows& out,
                     const Launch& how) {
  launch("quantise_floats", quantise_floats_kernel, dim3(rows), dim3(kRowThreads), 0, how, values, cols, leading, out,
         steps_of(cols));
}

}  // namespace carat::cuda
