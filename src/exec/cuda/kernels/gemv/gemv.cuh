#pragma once

// The quantised matrix-vector kernel (device code). out[r][o] = sum_k W[o][k] x[r][k] for R = 1, 2, 4 or 8 rows x.
//
//   grid:  one block of 16 warps per SM; groups of 4 weight rows are dealt out to the blocks in turn
//   block: its (group, step) pairs in order, cut into 16 equal ranges, one per warp, so that every warp of every SM
//   reads
//          the same number of bytes whatever the shape; a group that ends up in several warps is put together at the
//          end
//   lane:  reads 32 columns (one step's block) of one of the 4 rows, kDepth steps ahead of their use
//   GEGLU: the 4 rows of a group are 2 gate rows and the 2 up rows that belong to them; 8 neighbouring groups go to the
//          same block, which quantises their 16 results for the next product
//
// Bound by HBM: every weight byte is read once, in 128-byte runs per row and step. The loads that fill the pipeline are
// issued before wait_for_predecessor(), because weights never change, and a block takes no more than half of a SM, so
// that the next kernel's blocks are there early enough for that.
#include "exec/cuda/kernels/gemv/activation.cuh"
#include "exec/cuda/kernels/gemv/gemv.h"
#include "exec/cuda/kernels/gemv/packings.cuh"

namespace carat::cuda {

inline constexpr uint32_t kGemvWarps = 16;
inline constexpr uint32_t kGemvThreads = 32 * kGemvWarps;

struct GemvShared {
  uint32_t* words;  // [R][steps * kStepWords]
  BlockMeta* meta;  // [R][steps * 8]
  float* values;    // [R][steps * 256] for float weights
  float* heads;     // [warps][4][R]: what a warp found of a group that began in the warp before
  float* geglu;     // [R][16 results a unit]
};

// GEGLU units of 16 results a block may get.
__host__ __device__ inline uint32_t geglu_units(uint32_t results, uint32_t blocks) {
  return ((results + 15) / 16 + blocks - 1) / blocks;
}

__host__ __device__ inline size_t gemv_shared_bytes(uint32_t rows, uint32_t steps, bool floats, uint32_t units) {
  size_t bytes = static_cast<size_t>(rows) * steps * (kStepWords * 4 + kStepBlocks * sizeof(BlockMeta));
  if (floats) bytes += static_cast<size_t>(rows) * steps * kStep * 4;
  return bytes + (kGemvWarps * 4 * rows + rows * 16 * units) * 4;
}

template <int R>
__device__ GemvShared carve(unsigned char* memory, uint32_t steps, bool floats) {
  GemvShared s{};
  auto take = [&](size_t bytes) {
    unsigned char* taken = memory;
    memory += bytes;
    return taken;
  };
  s.words = reinterpret_cast<uint32_t*>(take(static_cast<size_t>(R) * steps * kStepWords * 4));
  s.meta = reinterpret_cast<BlockMeta*>(take(static_cast<size_t>(R) * steps * kStepBlocks * sizeof(BlockMeta)));
  if (floats) s.values = reinterpret_cast<float*>(take(static_cast<size_t>(R) * steps * kStep * 4));
  s.heads = reinterpret_cast<float*>(take(kGemvWarps * 4 * R * 4));
  s.geglu = reinterpret_cast<float*>(memory);
  return s;
}

// Fills the activation part of shared memory; ends with a barrier.
template <int R>
__device__ __forceinline__ void prepare_activations(const GemvJob& job, uint32_t steps, const GemvShared& s) {
  if (job.input == GemvInput::kQuantised) {
    const auto copy = [](void* to, const void* from, uint32_t pieces) {
      for (uint32_t i = threadIdx.x; i < pieces; i += kGemvThreads) {
        static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
      }
    };
    copy(s.words, job.quantised.words, R * steps * (kStepWords / 4));
    copy(s.meta, job.quantised.meta, R * steps * kStepBlocks);
    if (s.values != nullptr) copy(s.values, job.quantised.values, R * steps * (kStep / 4));
  } else {
    const uint32_t cols = job.part[0].weights.cols;
    for (uint32_t c = 4 * threadIdx.x; c < R * steps * kStep; c += 4 * kGemvThreads) {
      const uint32_t r = c / (steps * kStep), column = c % (steps * kStep);
      const float4 v = load4(job.floats + static_cast<uint64_t>(r) * cols, column, cols);
      quantise4(v, column, s.words + r * steps * kStepWords, s.meta + r * steps * kStepBlocks);
      if (s.values != nullptr)
        *reinterpret_cast<float4*>(s.values + static_cast<size_t>(r) * steps * kStep + column) = v;
    }
  }
  __syncthreads();
}

// Where a group of 4 weight rows lies: which part, and this lane's row in it.
struct GroupRow {
  uint32_t part;
  uint32_t row;
};

template <typename Dot, int R>
struct GemvBlock {
  const GemvJob& job;
  const GemvShared& s;
  uint32_t warp, lane, steps;
  bool geglu;

  static __device__ uint32_t groups_of(const GemvPart& part) { return (part.weights.rows + 3) / 4; }
  __device__ uint32_t pairs() const { return job.part[0].weights.rows; }
  // Groups of this block; local group j is the global group global_group(j).
  __device__ uint32_t local_groups() const {
    if (geglu) {
      const uint32_t units = (pairs() + 15) / 16;
      return (units - blockIdx.x + gridDim.x - 1) / gridDim.x * 8;
    }
    uint32_t total = 0;
    for (uint32_t p = 0; p < job.parts; ++p) total += groups_of(job.part[p]);
    return (total - blockIdx.x + gridDim.x - 1) / gridDim.x;
  }
  __device__ GroupRow locate(uint32_t j) const {
    if (geglu) {
      const uint32_t group = (blockIdx.x + j / 8 * gridDim.x) * 8 + j % 8;
      return {lane / 16, group * 2 + (lane / 8 & 1)};
    }
    uint32_t group = blockIdx.x + j * gridDim.x, part = 0;
    while (part + 1 < job.parts && group >= groups_of(job.part[part])) group -= groups_of(job.part[part++]);
    return {part, group * 4 + lane / 8};
  }

  // Hands out the sums of local group j, which all eight lanes of a row hold.
  __device__ void store(uint32_t j, const float (&acc)[R]) const {
    const GroupRow at = locate(j);
    if (geglu) {
      const bool inside = at.row < pairs();
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float up = __shfl_down_sync(0xffffffffu, acc[r], 16);
        if (lane < 16 && static_cast<int>(lane % 8) == r) {
          s.geglu[(j / 8 * R + r) * 16 + j % 8 * 2 + lane / 8] = inside ? gelu(acc[r]) * up : 0.0f;
        }
      }
      return;
    }
    const GemvPart& part = job.part[at.part];
    if (at.row >= part.weights.rows) return;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (static_cast<int>(lane % 8) != r || r >= static_cast<int>(job.rows)) continue;
      float v = acc[r];
      if (job.output == GemvOutput::kGeluTimes) {
        v = gelu(v) * job.factors[static_cast<uint64_t>(r) * job.factors_leading + at.row];
      } else if (job.output == GemvOutput::kSoftcap) {
        if (!isfinite(v)) job.non_finite[r] = 1;
        if (job.cap > 0.0f) v = job.cap * tanhf(v / job.cap);
      }
      part.out[static_cast<uint64_t>(r) * part.leading + at.row] = v;
    }
  }

  __device__ static void sum_lanes(float (&acc)[R]) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int offset = 4; offset > 0; offset >>= 1) acc[r] += __shfl_xor_sync(0xffffffffu, acc[r], offset);
    }
  }

  __device__ __forceinline__ void run() const {
    constexpr int kDepth = Dot::kDepth;
    const uint32_t groups = local_groups();
    const uint32_t items = groups * steps;
    const auto range = [&](uint32_t w) { return min(items, (items * w + kGemvWarps - 1) / kGemvWarps); };
    const uint32_t begin = range(warp), end = range(warp + 1);
    typename Dot::Regs buffer[kDepth];

    uint32_t load_item = begin, load_group = begin / steps, load_step = begin % steps;
    const auto issue = [&](typename Dot::Regs& slot) {
      if (load_item >= end) return;
      const GroupRow at = locate(load_group);
      const PackedView& w = job.part[at.part].weights;
      Dot::load(w, static_cast<uint64_t>(min(at.row, w.rows - 1)) * steps + load_step, lane % 8, slot);
      ++load_item;
      if (++load_step == steps) {
        load_step = 0;
        ++load_group;
      }
    };
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) issue(buffer[depth]);
    wait_for_predecessor();
    release_successor();
    prepare_activations<R>(job, steps, s);

    float acc[R] = {};
    uint32_t group = begin / steps, step = begin % steps;
    bool is_head = step != 0;  // the group began in an earlier warp
    if (begin == end && lane < 4) {
      // With fewer items than warps some have none; they still count as part of the group around them.
#pragma unroll
      for (int r = 0; r < R; ++r) s.heads[(warp * 4 + lane) * R + r] = 0.0f;
    }
    for (uint32_t it = begin; it < end; it += kDepth) {
#pragma unroll
      for (int depth = 0; depth < kDepth; ++depth) {
        if (it + depth >= end) break;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const LaneActivation a{reinterpret_cast<const uint4*>(s.words + (r * steps + step) * kStepWords) + lane % 8,
                                 s.meta + (r * steps + step) * kStepBlocks + lane % 8,
                                 Dot::kFloat ? s.values + static_cast<size_t>(r * steps + step) * kStep : nullptr};
          acc[r] += lane_dot<Dot>(buffer[depth], a, lane % 8);
        }
        issue(buffer[depth]);
        const bool last = it + depth + 1 == end;
        if (++step == steps || (last && is_head)) {
          sum_lanes(acc);
          if (is_head) {
            if (lane % 8 == 0) {
#pragma unroll
              for (int r = 0; r < R; ++r) s.heads[(warp * 4 + lane / 8) * R + r] = acc[r];
            }
            is_head = false;
          } else {
            store(group, acc);
          }
#pragma unroll
          for (int r = 0; r < R; ++r) acc[r] = 0.0f;
          if (step == steps) {
            step = 0;
            ++group;
          }
        }
      }
    }
    __syncthreads();
    // A group that began here and went on in the warps after this one.
    const uint32_t group_begin = group * steps, group_end = group_begin + steps;
    if (begin < end && group_begin >= begin && group_begin < end && group_end > end) {
      sum_lanes(acc);
      for (uint32_t w = warp + 1; w < kGemvWarps && range(w) < group_end; ++w) {
#pragma unroll
        for (int r = 0; r < R; ++r) acc[r] += s.heads[(w * 4 + lane / 8) * R + r];
      }
      store(group, acc);
    }
    if (geglu) {
      __syncthreads();
      quantise_results(groups / 8);
    }
  }

  // Two units of 16 results per warp and turn, one in each half.
  __device__ void quantise_results(uint32_t units) const {
    for (uint32_t first = 2 * warp; first < units * R; first += 2 * kGemvWarps) {
      const uint32_t index = first + lane / 16;
      const bool inside = index < units * R;
      const uint32_t unit = index / R, r = index % R;
      const float v = inside ? s.geglu[index * 16 + lane % 16] : 0.0f;
      const uint64_t row = static_cast<uint64_t>(r) * job.geglu_steps;
      quantise_half_warp(v, (blockIdx.x + unit * gridDim.x) * 16 + lane % 16, inside,
                         job.geglu.words + row * kStepWords, job.geglu.meta + row * kStepBlocks,
                         job.geglu.values == nullptr ? nullptr : job.geglu.values + row * kStep);
    }
  }
};

// All parts of a job have the same packing here.
template <typename Dot, int R>
__global__ void __launch_bounds__(kGemvThreads, R <= 2 ? 2 : 1) gemv_kernel(const __grid_constant__ GemvJob job) {
  CARAT_BLOCK_MEMORY(16, unsigned char, memory);
  const uint32_t steps = job.part[0].weights.steps;
  const GemvShared s = carve<R>(memory, steps, Dot::kFloat);
  const GemvBlock<Dot, R> block{job, s, threadIdx.x / 32, threadIdx.x % 32, steps, job.output == GemvOutput::kGeglu};
  block.run();
}

// One block per SM, or per unit of work where there is less.
uint32_t gemv_blocks(const GemvJob& job, uint32_t sm_count);

template <typename Dot>
void launch_gemv(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch) {
  // Buffers are padded to the variant's rows.
  const uint32_t rows = job.rows <= 2 ? job.rows : job.rows <= 4 ? 4 : 8;
  const uint32_t blocks = gemv_blocks(job, sm_count);
  const uint32_t units = job.output == GemvOutput::kGeglu ? geglu_units(job.part[0].weights.rows, blocks) : 0;
  const size_t shared_bytes = gemv_shared_bytes(rows, job.part[0].weights.steps, Dot::kFloat, units);
  const auto start = [&](auto kernel) {
    if (shared_bytes > 48 * 1024) allow_shared_memory(kernel, shared_bytes, "matvec");
    launch_kernel("matvec", kernel, dim3(blocks), dim3(kGemvThreads), shared_bytes, launch, job);
  };
  switch (rows) {
    case 1:
      return start(gemv_kernel<Dot, 1>);
    case 2:
      return start(gemv_kernel<Dot, 2>);
    case 4:
      return start(gemv_kernel<Dot, 4>);
    default:
      return start(gemv_kernel<Dot, 8>);
  }
}

// Instantiated a few packings per translation unit.
void gemv_8bit(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch);   // kQ8
void gemv_4bit(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch);   // kQ4, kQ4K
void gemv_6bit(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch);   // kQ5K, kQ6K
void gemv_float(const GemvJob& job, uint32_t sm_count, const LaunchConfig& launch);  // kF16, kBF16, kF32

}  // namespace carat::cuda
