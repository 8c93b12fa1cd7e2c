#pragma once

// The quantised matrix-vector kernel (device code). out[r][o] = sum_k W[o][k] x[r][k] for R = 1, 2, 4 or 8 rows x.
//
//   block: 8 warps = (8 / split) row groups x split parts of K; a warp covers 4 weight rows, eight lanes a row
//   lane:  reads 32 columns (one step's block) of its row, kDepth steps ahead of their use
//   grid:  blocks of a part walk its row tiles with stride `blocks`
//   GEGLU: the 4 rows of a warp are 2 gate rows and the 2 up rows that belong to them; the 16 results of a tile are
//          quantised for the next product
//
// Bound by HBM: every weight byte is read once, in 128-byte runs per row and step. The loads that fill the pipeline are
// issued before wait_for_predecessor(), because weights never change.
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/matvec.h"
#include "exec/cuda/kernels/packings.cuh"

namespace carat::cuda {

struct MatvecGrid {
  uint32_t split;  // warps that share a row's columns: 1, 2, 4 or 8
  uint32_t first_block[kMatvecParts + 1];
};

struct MatvecShared {
  uint32_t* words;  // [R][steps * kStepWords]
  BlockMeta* meta;  // [R][steps * 8]
  float* values;    // [R][steps * 256] for float weights
  float* partial;   // [8 warps][4][R]
  float* geglu;     // [R][16]
};

__host__ __device__ inline size_t matvec_shared_bytes(uint32_t rows, uint32_t steps, bool floats) {
  size_t bytes = static_cast<size_t>(rows) * steps * (kStepWords * 4 + kStepBlocks * sizeof(BlockMeta));
  if (floats) bytes += static_cast<size_t>(rows) * steps * kStep * 4;
  return bytes + (8 * 4 * rows + rows * 16) * 4;
}

template <int R>
__device__ MatvecShared carve(unsigned char* memory, uint32_t steps, bool floats) {
  MatvecShared s{};
  auto take = [&](size_t bytes) {
    unsigned char* taken = memory;
    memory += bytes;
    return taken;
  };
  s.words = reinterpret_cast<uint32_t*>(take(static_cast<size_t>(R) * steps * kStepWords * 4));
  s.meta = reinterpret_cast<BlockMeta*>(take(static_cast<size_t>(R) * steps * kStepBlocks * sizeof(BlockMeta)));
  if (floats) s.values = reinterpret_cast<float*>(take(static_cast<size_t>(R) * steps * kStep * 4));
  s.partial = reinterpret_cast<float*>(take(8 * 4 * R * 4));
  s.geglu = reinterpret_cast<float*>(take(R * 16 * 4));
  return s;
}

// Fills the activation part of shared memory; ends with a barrier.
template <int R>
__device__ __forceinline__ void prepare_activations(const MatvecJob& job, uint32_t steps, const MatvecShared& s) {
  if (job.input == MatvecInput::kQuantised) {
    const auto copy = [](void* to, const void* from, uint32_t pieces) {
      for (uint32_t i = threadIdx.x; i < pieces; i += kRowThreads) {
        static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
      }
    };
    copy(s.words, job.quantised.words, R * steps * (kStepWords / 4));
    copy(s.meta, job.quantised.meta, R * steps * kStepBlocks);
    if (s.values != nullptr) copy(s.values, job.quantised.values, R * steps * (kStep / 4));
  } else {
    const uint32_t cols = job.part[0].weights.cols;
#pragma unroll 1
    for (int r = 0; r < R; ++r) {
      quantise_row(job.floats + static_cast<uint64_t>(r) * cols, cols, steps, s.words + r * steps * kStepWords,
                   s.meta + r * steps * kStepBlocks,
                   s.values == nullptr ? nullptr : s.values + static_cast<size_t>(r) * steps * kStep);
    }
  }
  __syncthreads();
}

template <int R>
struct MatvecTile {
  const MatvecJob& job;
  const MatvecPart& part;
  const MatvecShared& s;
  uint32_t split, warp, lane, group, k_part;
  bool geglu;

  // Weight row of this lane; in a GEGLU tile the pair's index, with is_up() telling which of the two.
  __device__ uint32_t row(uint32_t tile) const {
    if (geglu) return tile * 16 + warp * 2 + (lane / 8 & 1);
    return (tile * (8 / split) + group) * 4 + lane / 8;
  }
  __device__ bool is_up() const { return geglu && lane >= 16; }
  __device__ uint32_t tiles() const {
    const uint32_t rows_per_tile = geglu ? 16 : 8 / split * 4;
    return (part.weights.rows + rows_per_tile - 1) / rows_per_tile;
  }

  // Sums the lanes (and the warps that split K), then hands the results out.
  __device__ void finish(uint32_t tile, float (&acc)[R]) const {
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int offset = 4; offset > 0; offset >>= 1) acc[r] += __shfl_xor_sync(0xffffffffu, acc[r], offset);
    }
    if (geglu) {
      finish_geglu(tile, acc);
      return;
    }
    if (split > 1) {
      if (lane % 8 == 0) {
#pragma unroll
        for (int r = 0; r < R; ++r) s.partial[(warp * 4 + lane / 8) * R + r] = acc[r];
      }
      __syncthreads();
      if (k_part == 0) {
        for (uint32_t other = 1; other < split; ++other) {
#pragma unroll
          for (int r = 0; r < R; ++r) acc[r] += s.partial[((warp + other) * 4 + lane / 8) * R + r];
        }
      }
    }
    if (k_part == 0) store(tile, acc);
    if (split > 1) __syncthreads();
  }

  __device__ void finish_geglu(uint32_t tile, float (&acc)[R]) const {
    const bool inside = row(tile) < part.weights.rows;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float up = __shfl_down_sync(0xffffffffu, acc[r], 16);
      if (lane < 16 && lane % 8 == r % 8) s.geglu[r * 16 + warp * 2 + lane / 8] = inside ? gelu(acc[r]) * up : 0.0f;
    }
    __syncthreads();
    if (warp < R) {
      const uint64_t first = static_cast<uint64_t>(warp) * job.geglu_steps;
      quantise_half_warp(s.geglu[warp * 16 + lane % 16], tile * 16 + lane % 16, lane < 16,
                         job.geglu.words + first * kStepWords, job.geglu.meta + first * kStepBlocks,
                         job.geglu.values == nullptr ? nullptr : job.geglu.values + first * kStep);
    }
    __syncthreads();
  }

  __device__ void store(uint32_t tile, float (&acc)[R]) const {
    const uint32_t o = row(tile);
    if (o >= part.weights.rows) return;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (static_cast<int>(lane % 8) != r || r >= static_cast<int>(job.rows)) continue;
      float v = acc[r];
      if (job.output == MatvecOutput::kGeluTimes) {
        v = gelu(v) * job.factors[static_cast<uint64_t>(r) * job.factors_leading + o];
      } else if (job.output == MatvecOutput::kSoftcap) {
        if (!isfinite(v)) *job.non_finite = 1;
        if (job.cap > 0.0f) v = job.cap * tanhf(v / job.cap);
      }
      part.out[static_cast<uint64_t>(r) * part.leading + o] = v;
    }
  }

  template <typename Dot>
  __device__ __forceinline__ void run(uint32_t block, uint32_t blocks) const {
    constexpr int kDepth = Dot::kDepth;
    const PackedView& w = is_up() ? job.part[1].weights : part.weights;
    const uint32_t steps = w.steps;
    const uint32_t my_tiles = (tiles() - block + blocks - 1) / blocks;
    const uint32_t total = my_tiles * ((steps - k_part + split - 1) / split);
    typename Dot::Regs buffer[kDepth];

    uint32_t issued = 0, load_tile = block, load_step = k_part;
    const auto issue = [&](typename Dot::Regs& slot) {
      if (issued >= total) return;
      const uint32_t o = min(row(load_tile), w.rows - 1);
      Dot::load(w, static_cast<uint64_t>(o) * steps + load_step, lane % 8, slot);
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

    float acc[R] = {};
    uint32_t step = k_part, tile = block;
    for (uint32_t it = 0; it < total; it += kDepth) {
#pragma unroll
      for (int depth = 0; depth < kDepth; ++depth) {
        if (it + depth >= total) break;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const LaneActivation a{reinterpret_cast<const uint4*>(s.words + (r * steps + step) * kStepWords) + lane % 8,
                                 s.meta + (r * steps + step) * kStepBlocks + lane % 8,
                                 Dot::kFloat ? s.values + static_cast<size_t>(r * steps + step) * kStep : nullptr};
          acc[r] += lane_dot<Dot>(buffer[depth], a, lane % 8);
        }
        issue(buffer[depth]);
        step += split;
        if (step >= steps) {
          finish(tile, acc);
#pragma unroll
          for (int r = 0; r < R; ++r) acc[r] = 0.0f;
          step = k_part;
          tile += blocks;
        }
      }
    }
  }
};

// All parts of a job have the same packing here.
template <typename Dot, int R>
__global__ void __launch_bounds__(kRowThreads, R <= 2 ? 4 : 2)
    matvec_kernel(const __grid_constant__ MatvecJob job, const __grid_constant__ MatvecGrid grid) {
  extern __shared__ __align__(16) unsigned char memory[];
  uint32_t which = 0;
  const bool geglu = job.output == MatvecOutput::kGeglu;
  while (!geglu && which + 1 < job.parts && blockIdx.x >= grid.first_block[which + 1]) ++which;
  const MatvecShared s = carve<R>(memory, job.part[0].weights.steps, Dot::kFloat);
  const uint32_t warp = threadIdx.x / 32;
  const MatvecTile<R> tile{
      job, job.part[which], s, grid.split, warp, threadIdx.x % 32, warp / grid.split, warp % grid.split, geglu};
  tile.template run<Dot>(blockIdx.x - grid.first_block[which], grid.first_block[which + 1] - grid.first_block[which]);
}

template <typename Dot>
void launch_matvec(const MatvecJob& job, const MatvecGrid& grid, const Launch& how) {
  // Buffers are padded to the variant's rows.
  const uint32_t rows = job.rows <= 2 ? job.rows : job.rows <= 4 ? 4 : 8;
  const size_t shared_bytes = matvec_shared_bytes(rows, job.part[0].weights.steps, Dot::kFloat);
  const auto start = [&](auto kernel) {
    if (shared_bytes > 48 * 1024) allow_shared_memory(kernel, shared_bytes, "matvec");
    launch("matvec", kernel, dim3(grid.first_block[kMatvecParts]), dim3(kRowThreads), shared_bytes, how, job, grid);
  };
  switch (rows) {
    case 1:
      return start(matvec_kernel<Dot, 1>);
    case 2:
      return start(matvec_kernel<Dot, 2>);
    case 4:
      return start(matvec_kernel<Dot, 4>);
    default:
      return start(matvec_kernel<Dot, 8>);
  }
}

// Instantiated a few packings per translation unit.
void matvec_8bit(const MatvecJob& job, const MatvecGrid& grid, const Launch& how);   // kQ8
void matvec_4bit(const MatvecJob& job, const MatvecGrid& grid, const Launch& how);   // kQ4, kQ4K
void matvec_6bit(const MatvecJob& job, const MatvecGrid& grid, const Launch& how);   // kQ5K, kQ6K
void matvec_float(const MatvecJob& job, const MatvecGrid& grid, const Launch& how);  // kF16, kBF16, kF32

}  // namespace carat::cuda
