#pragma once

// The quantised matrix-vector kernel (device code). out[r][o] = sum_k W[o][k] x[r][k] for R = 1, 2, 4 or 8 rows x.
//
//   block: 8 warps = (8 / split) row groups x split parts of K; a warp covers 4 NR weight rows, eight lanes a row
//   lane:  reads 32 columns (one step's block) of NR rows, kDepth steps ahead of their use
//   grid:  blocks of a part loop over its row tiles with stride `blocks`
//
// Bound by HBM: every weight byte is read once, in 128-byte runs per row and step. The loads that fill the pipeline are
// issued before wait_for_predecessor(), because weights never change. Activations are prepared in shared memory by each
// block itself (MatvecInput), which is cheaper than a kernel of their own for one or two rows.
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/matvec.h"
#include "exec/cuda/kernels/packings.cuh"

namespace carat::cuda {

struct MatvecGrid {
  uint32_t split;  // warps that share a row's columns: 1, 2, 4 or 8
  uint32_t first_block[kMatvecParts + 1];
};

struct MatvecShared {
  uint32_t* words;  // [R][steps * 64]
  BlockMeta* meta;  // [R][steps * 8]
  float* values;    // [R][steps * 256] when a part has float weights
  float* row;       // [steps * 256] for kResidualNorm
  float* partial;   // [8 warps][4][NR][R]
  float* geglu;     // [R][32]
  float* scratch;   // [8]
};

__host__ __device__ inline size_t matvec_shared_bytes(uint32_t rows, uint32_t row_per_lane, uint32_t steps, bool floats,
                                                      MatvecInput input) {
  size_t bytes = static_cast<size_t>(rows) * steps * (64 * 4 + 8 * sizeof(BlockMeta));
  if (floats) bytes += static_cast<size_t>(rows) * steps * kStep * 4;
  if (input == MatvecInput::kResidualNorm) bytes += static_cast<size_t>(steps) * kStep * 4;
  return bytes + (8 * 4 * row_per_lane * rows + rows * 32 + 8) * 4;
}

template <int R, int NR>
__device__ MatvecShared carve(unsigned char* memory, uint32_t steps, bool floats, MatvecInput input) {
  MatvecShared s{};
  auto take = [&](size_t bytes) {
    unsigned char* taken = memory;
    memory += bytes;
    return taken;
  };
  s.words = reinterpret_cast<uint32_t*>(take(static_cast<size_t>(R) * steps * 256));
  s.meta = reinterpret_cast<BlockMeta*>(take(static_cast<size_t>(R) * steps * 8 * sizeof(BlockMeta)));
  if (floats) s.values = reinterpret_cast<float*>(take(static_cast<size_t>(R) * steps * kStep * 4));
  if (input == MatvecInput::kResidualNorm)
    s.row = reinterpret_cast<float*>(take(static_cast<size_t>(steps) * kStep * 4));
  s.partial = reinterpret_cast<float*>(take(8 * 4 * NR * R * 4));
  s.geglu = reinterpret_cast<float*>(take(R * 32 * 4));
  s.scratch = reinterpret_cast<float*>(take(8 * 4));
  return s;
}

// Fills the activation part of shared memory; ends with a barrier.
template <int R>
__device__ void prepare_activations(const MatvecJob& job, uint32_t steps, const MatvecShared& s) {
  const uint32_t cols = job.part[0].weights.cols;
  if (job.input == MatvecInput::kQuantised) {
    const auto* words = reinterpret_cast<const uint4*>(job.quantised.words);
    const auto* meta = reinterpret_cast<const uint4*>(job.quantised.meta);
    for (uint32_t i = threadIdx.x; i < R * steps * 16; i += kRowThreads)
      reinterpret_cast<uint4*>(s.words)[i] = words[i];
    for (uint32_t i = threadIdx.x; i < R * steps * 4; i += kRowThreads) reinterpret_cast<uint4*>(s.meta)[i] = meta[i];
    if (s.values != nullptr) {
      const auto* values = reinterpret_cast<const uint4*>(job.quantised.values);
      for (uint32_t i = threadIdx.x; i < R * steps * 64; i += kRowThreads) {
        reinterpret_cast<uint4*>(s.values)[i] = values[i];
      }
    }
  } else {
    for (int r = 0; r < R; ++r) {
      float* floats = s.values == nullptr ? nullptr : s.values + static_cast<size_t>(r) * steps * kStep;
      const float* source = job.floats + static_cast<uint64_t>(r) * cols;
      if (job.input == MatvecInput::kResidualNorm) {
        residual_norm_row(job.residual, r, blockIdx.x == 0, s.row, s.scratch);
        source = s.row;
      }
      quantise_row(source, cols, steps, s.words + r * steps * 64, s.meta + r * steps * 8, floats);
    }
  }
  __syncthreads();
}

// One 32-column block of quantised results from the 32 rows of a GEGLU tile; warp r does activation row r.
__device__ inline void store_geglu(const MatvecJob& job, const float* tile_values, uint32_t tile, uint32_t r) {
  const uint32_t lane = threadIdx.x & 31;
  const uint64_t first = static_cast<uint64_t>(r) * job.geglu_steps;
  quantise_warp(tile_values[r * 32 + lane], tile * 32 + lane, job.geglu.words + first * 64, job.geglu.meta + first * 8,
                job.geglu.values == nullptr ? nullptr : job.geglu.values + first * kStep);
}

template <int R, int NR>
struct MatvecTile {
  const MatvecJob& job;
  const MatvecPart& part;
  const MatvecShared& s;
  uint32_t split, warp, lane, group, k_part;
  bool geglu;

  __device__ uint32_t rows_per_warp() const { return geglu ? 4 : 4 * NR; }
  __device__ uint32_t row(uint32_t tile, int j) const {
    const uint32_t first = (tile * (8 / split) + group) * rows_per_warp();
    return first + lane / 8 + (geglu ? 0 : 4 * j);
  }
  __device__ uint32_t tiles() const {
    const uint32_t rows_per_tile = 8 / split * rows_per_warp();
    return (part.weights.rows + rows_per_tile - 1) / rows_per_tile;
  }

  // Sums the lanes (and the warps that split K), then hands the results out.
  __device__ void finish(uint32_t tile, float (&acc)[NR][R]) const {
#pragma unroll
    for (int j = 0; j < NR; ++j) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
#pragma unroll
        for (int offset = 4; offset > 0; offset >>= 1) acc[j][r] += __shfl_xor_sync(0xffffffffu, acc[j][r], offset);
      }
    }
    if (split > 1) {
      float* mine = s.partial + ((warp * 4 + lane / 8) * NR) * R;
      if (lane % 8 == 0) {
#pragma unroll
        for (int j = 0; j < NR; ++j) {
#pragma unroll
          for (int r = 0; r < R; ++r) mine[j * R + r] = acc[j][r];
        }
      }
      __syncthreads();
      if (k_part == 0) {
        for (uint32_t other = 1; other < split; ++other) {
          const float* theirs = s.partial + (((warp + other) * 4 + lane / 8) * NR) * R;
#pragma unroll
          for (int j = 0; j < NR; ++j) {
#pragma unroll
            for (int r = 0; r < R; ++r) acc[j][r] += theirs[j * R + r];
          }
        }
      }
    }
    if (geglu) {
      finish_geglu(tile, acc);
    } else if (k_part == 0) {
      store(tile, acc);
    }
    if (split > 1) __syncthreads();
  }

  __device__ void finish_geglu(uint32_t tile, float (&acc)[NR][R]) const {
    if constexpr (NR == 2) {
      const bool inside = row(tile, 0) < part.weights.rows;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (lane % 8 == r % 8) {
          s.geglu[r * 32 + warp * 4 + lane / 8] = inside ? gelu(acc[0][r]) * acc[1][r] : 0.0f;
        }
      }
      __syncthreads();
      if (warp < R) store_geglu(job, s.geglu, tile, warp);
      __syncthreads();
    }
  }

  __device__ void store(uint32_t tile, float (&acc)[NR][R]) const {
#pragma unroll
    for (int j = 0; j < NR; ++j) {
      const uint32_t o = row(tile, j);
      if (o >= part.weights.rows) continue;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (static_cast<int>(lane % 8) != r || r >= static_cast<int>(job.rows)) continue;
        float v = acc[j][r];
        if (job.output == MatvecOutput::kGeluTimes) {
          v = gelu(v) * job.factors[static_cast<uint64_t>(r) * job.factors_leading + o];
        } else if (job.output == MatvecOutput::kSoftcap) {
          if (!isfinite(v)) *job.non_finite = 1;
          if (job.cap > 0.0f) v = job.cap * tanhf(v / job.cap);
        }
        part.out[static_cast<uint64_t>(r) * part.leading + o] = v;
      }
    }
  }

  template <typename Dot>
  __device__ void run(uint32_t block, uint32_t blocks) const {
    constexpr int kDepth = Dot::kDepth;
    const uint32_t steps = part.weights.steps;
    const uint32_t my_steps = (steps - k_part + split - 1) / split;
    const uint32_t my_tiles = (tiles() - block + blocks - 1) / blocks;
    const uint32_t total = my_tiles * my_steps;
    const PackedView second = geglu ? job.part[1].weights : part.weights;
    typename Dot::Regs buffer[kDepth][NR];

    uint32_t issued = 0, load_tile = block, load_step = k_part;
    const auto issue = [&](typename Dot::Regs(&slot)[NR]) {
      if (issued >= total) return;
#pragma unroll
      for (int j = 0; j < NR; ++j) {
        const uint32_t o = min(row(load_tile, j), part.weights.rows - 1);
        Dot::load(j == 0 ? part.weights : second, static_cast<uint64_t>(o) * steps + load_step, lane % 8, slot[j]);
      }
      ++issued;
      load_step += split;
      if (load_step >= steps) {
        load_step = k_part;
        load_tile += blocks;
      }
    };
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) issue(buffer[depth]);
    wait_for_predecessor();
    release_successor();
    prepare_activations<R>(job, steps, s);

    float acc[NR][R] = {};
    uint32_t step = k_part, tile = block;
    for (uint32_t it = 0; it < total; it += kDepth) {
#pragma unroll
      for (int depth = 0; depth < kDepth; ++depth) {
        if (it + depth >= total) break;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const LaneActivation a{reinterpret_cast<const uint4*>(s.words + (r * steps + step) * 64) + lane % 8,
                                 s.meta + (r * steps + step) * 8 + lane % 8,
                                 Dot::kFloat ? s.values + static_cast<size_t>(r * steps + step) * kStep : nullptr};
#pragma unroll
          for (int j = 0; j < NR; ++j) acc[j][r] += lane_dot<Dot>(buffer[depth][j], a, lane % 8);
        }
        issue(buffer[depth]);
        step += split;
        if (step >= steps) {
          finish(tile, acc);
#pragma unroll
          for (int j = 0; j < NR; ++j) {
#pragma unroll
            for (int r = 0; r < R; ++r) acc[j][r] = 0.0f;
          }
          step = k_part;
          tile += blocks;
        }
      }
    }
  }
};

template <int R, int NR>
__global__ void __launch_bounds__(kRowThreads, R <= 2 ? 3 : 2)
    matvec_kernel(const __grid_constant__ MatvecJob job, const __grid_constant__ MatvecGrid grid) {
  extern __shared__ __align__(16) unsigned char memory[];
  uint32_t which = 0;
  const bool geglu = job.output == MatvecOutput::kGeglu;
  bool floats = is_float_packing(job.part[0].weights.packing);
  if (!geglu) {
    while (which + 1 < job.parts && blockIdx.x >= grid.first_block[which + 1]) ++which;
    for (uint32_t p = 1; p < job.parts; ++p) floats = floats || is_float_packing(job.part[p].weights.packing);
  }
  const MatvecShared s = carve<R, NR>(memory, job.part[0].weights.steps, floats, job.input);
  const uint32_t warp = threadIdx.x / 32;
  const MatvecTile<R, NR> tile{
      job, job.part[which], s, grid.split, warp, threadIdx.x % 32, warp / grid.split, warp % grid.split, geglu};
  const uint32_t block = blockIdx.x - grid.first_block[which];
  const uint32_t blocks = grid.first_block[which + 1] - grid.first_block[which];
  switch (job.part[which].weights.packing) {
    case Packing::kQ8:
      tile.template run<DotQ8>(block, blocks);
      break;
    case Packing::kQ4:
      tile.template run<DotQ4>(block, blocks);
      break;
    case Packing::kQ4K:
      tile.template run<DotQ4K>(block, blocks);
      break;
    case Packing::kQ5K:
      tile.template run<DotQ5K>(block, blocks);
      break;
    case Packing::kQ6K:
      tile.template run<DotQ6K>(block, blocks);
      break;
    case Packing::kF16:
      tile.template run<DotF16>(block, blocks);
      break;
    case Packing::kBF16:
      tile.template run<DotBF16>(block, blocks);
      break;
    case Packing::kF32:
      tile.template run<DotF32>(block, blocks);
      break;
  }
}

template <int R, int NR>
void launch_matvec(const MatvecJob& job, const MatvecGrid& grid, size_t shared_bytes, const Launch& how) {
  if (shared_bytes > 48 * 1024) allow_shared_memory(matvec_kernel<R, NR>, shared_bytes, "matvec");
  launch("matvec", matvec_kernel<R, NR>, dim3(grid.first_block[kMatvecParts]), dim3(kRowThreads), shared_bytes, how,
         job, grid);
}

// Instantiated one row count per translation unit, because each holds every packing.
void matvec_rows_1(const MatvecJob& job, const MatvecGrid& grid, uint32_t row_per_lane, size_t shared_bytes,
                   const Launch& how);
void matvec_rows_2(const MatvecJob& job, const MatvecGrid& grid, uint32_t row_per_lane, size_t shared_bytes,
                   const Launch& how);
void matvec_rows_4(const MatvecJob& job, const MatvecGrid& grid, uint32_t row_per_lane, size_t shared_bytes,
                   const Launch& how);
void matvec_rows_8(const MatvecJob& job, const MatvecGrid& grid, uint32_t row_per_lane, size_t shared_bytes,
                   const Launch& how);

}  // namespace carat::cuda
