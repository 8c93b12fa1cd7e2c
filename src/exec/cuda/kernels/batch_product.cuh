#pragma once

// The batched product of quantised weights (device code): out[n][o] = sum_k W[o][k] x[n][k] for up to 64 rows x.
//
//   mma.m16n8k16: 16 weight rows (unpacked to fp16 in registers) times 8 rows of activations (fp16, in shared memory)
//   warp:  a tile of 16 kM weight rows times all rows of activations; for GEGLU the 16 rows are 8 gate and 8 up rows,
//   so
//          that both are in one lane. Weights come straight from memory into registers, kDepth pieces ahead
//   block: one per SM. It keeps the activations of one range of columns in shared memory; its (tile, step) pairs in
//          order are cut into equal ranges, one per warp, and a tile that ends up in several warps is put together at
//          the end
//   grid:  splits (ranges of columns) times blocks; weight row tiles are dealt out to the blocks of a split in turn. Of
//          the warps that have a tile of some range, the last one adds the ranges up, always in the same order
//
// Bound by HBM for few rows: every weight byte is read once. At 64 rows the tensor cores are nearly as busy (16 mma for
// 544 bytes of Q8_0), and the activations of wide matrices no longer fit one SM: hence the splits.
#include <numeric>

#include "exec/cuda/kernels/attention_mma.cuh"
#include "exec/cuda/kernels/batch_fragments.cuh"
#include "exec/cuda/kernels/batch_product.h"
#include "exec/cuda/kernels/batch_rows.cuh"

namespace carat::cuda {

inline constexpr uint32_t kBatchWarps = 8;

// One instantiation: kN tiles of 8 activation rows, kM tiles of 16 weight rows a warp. With 64 rows two weight tiles
// share each read of the activations; shared memory could not deliver them otherwise.
template <int kTilesN, int kTilesM>
struct BatchVariant {
  static constexpr int kN = kTilesN, kM = kTilesM;
  static constexpr uint32_t kWarps = kBatchWarps;
  static constexpr uint32_t kThreads = 32 * kWarps;
  // For few rows two blocks fit on a SM: that of the next kernel has asked for its first weights by the time this one
  // ends.
  static constexpr uint32_t kBlocks = kN <= 2 ? 2 : 1;
};
constexpr uint32_t batch_weight_tiles(uint32_t rows) { return rows > 32 ? 2 : 1; }

// Shared memory: activations of the slab, then the sums of tiles that span warps.
constexpr uint32_t batch_slab_bytes(uint32_t steps, uint32_t rows) {
  return steps * kBatchStepChunks * batch_tiles(rows) * 32 * 16;
}
constexpr uint32_t batch_heads_bytes(uint32_t rows) {
  return kBatchWarps * batch_weight_tiles(rows) * batch_tiles(rows) * 32 * 16;
}
constexpr uint32_t batch_shared_bytes(uint32_t steps, uint32_t rows) {
  return batch_slab_bytes(steps, rows) + batch_heads_bytes(rows);
}

template <typename Fragments, typename Variant>
struct BatchBlock {
  static constexpr int kN = Variant::kN, kM = Variant::kM;
  static constexpr uint32_t kWarps = Variant::kWarps, kThreads = Variant::kThreads;
  static constexpr int kChunks = Fragments::kChunks, kPieces = static_cast<int>(kBatchStepChunks) / kChunks;
  using Sums = float[kM][kN][4];
  using Loaded = typename Fragments::Regs[2 * kM];

  const BatchJob& job;
  const BatchCut& cut;
  const BatchScratch& scratch;
  uint4* activations;  // [slab * 8][kN][32]
  float4* heads;       // [warps][kM][kN][32]: what a warp found of a tile that began in the warp before
  float* scale;        // [64]
  uint32_t* largest;   // [64]
  uint32_t warp, lane, steps, split, place;
  bool geglu;

  // Where a tile lies: the part and its first row there (GEGLU: of both parts).
  struct Tile {
    uint32_t part, row;
  };
  static __device__ uint32_t tiles_of(const MatvecPart& part) { return (part.weights.rows + 16 * kM - 1) / (16 * kM); }
  __device__ Tile locate(uint32_t local) const {
    uint32_t tile = place + local * cut.blocks;
    if (geglu) return {0, tile * 8 * kM};
    uint32_t part = 0;
    while (part + 1 < job.parts && tile >= tiles_of(job.part[part])) tile -= tiles_of(job.part[part++]);
    return {part, tile * 16 * kM};
  }

  // Position in the sequence of steps a warp goes through.
  struct Cursor {
    uint32_t local, step;
  };

  __device__ __forceinline__ void fetch(const Tile& tile, uint32_t step, uint32_t piece, Loaded& to) const {
    const uint32_t g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const PackedView& w = job.part[geglu ? h : tile.part].weights;
        const uint32_t row = tile.row + (geglu ? 8 * m : 16 * m + 8 * h) + g;
        Fragments::load(w, static_cast<uint64_t>(min(row, w.rows - 1)) * steps + step, piece, t, to[2 * m + h]);
      }
    }
  }

  __device__ __forceinline__ void multiply(const Loaded& w, const uint4* x, Sums& sums) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      uint32_t f[2 * kM][4];
#pragma unroll
      for (int r = 0; r < 2 * kM; ++r) Fragments::chunk(w[r], c, f[r]);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const uint4 b = x[(c * kN + n) * 32 + lane];
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const uint32_t first[4] = {f[2 * m][0], f[2 * m + 1][0], f[2 * m][1], f[2 * m + 1][1]};
          const uint32_t second[4] = {f[2 * m][2], f[2 * m + 1][2], f[2 * m][3], f[2 * m + 1][3]};
          multiply_add(sums[m][n], first, b.x, b.y);
          multiply_add(sums[m][n], second, b.z, b.w);
        }
      }
    }
  }

  // Fills `scale` and `activations`; ends with a barrier.
  __device__ void stage(uint32_t first_step, uint32_t slab) const {
    const uint32_t chunks = slab * kBatchStepChunks * kN * 32;
    for (uint32_t n = threadIdx.x; n < kBatchRows; n += kThreads) {
      largest[n] = 0;
      if (n >= job.rows) {
        scale[n] = 0.0f;
      } else if (job.input.fragments != nullptr) {
        scale[n] = job.input.scale[n];
      } else {
        scale[n] = job.floats_largest == nullptr ? 1.0f : batch_scale(__uint_as_float(job.floats_largest[n]));
      }
    }
    if (job.input.fragments != nullptr) {
      const uint32_t stride = job.input.tiles * 32;
      const uint4* from = reinterpret_cast<const uint4*>(job.input.fragments) + first_step * kBatchStepChunks * stride;
      const uint32_t to = shared_address(activations);
      for (uint32_t i = threadIdx.x; i < chunks; i += kThreads) {
        copy_async(to + i * 16, from + i / (kN * 32) * stride + i % (kN * 32), true);
      }
      copy_async_commit();
      copy_async_wait<0>();
    } else {
      __syncthreads();  // the scales
      const uint32_t cols = job.part[0].weights.cols;
#pragma unroll 4
      for (uint32_t i = threadIdx.x; i < chunks; i += kThreads) {
        const uint32_t n = i / 32 % kN * kBatchTileRows + i % 32 / 4;
        const uint32_t column = first_step * kStep + batch_column(i / (32 * kN), i % 4);
        uint4 chunk = make_uint4(0, 0, 0, 0);
        if (n < job.rows && column < cols) {
          const float* row = job.floats + static_cast<uint64_t>(n) * job.floats_leading;
          chunk = batch_chunk(columns4(row, column, cols), columns4(row, column + 4, cols), 1.0f / scale[n]);
        }
        activations[i] = chunk;
      }
    }
    __syncthreads();
  }
  static __device__ float4 columns4(const float* row, uint32_t column, uint32_t cols) {
    if (column + 4 <= cols) return *reinterpret_cast<const float4*>(row + column);
    const auto at = [&](uint32_t c) { return c < cols ? row[c] : 0.0f; };
    return make_float4(at(column), at(column + 1), at(column + 2), at(column + 3));
  }

  __device__ __forceinline__ void run() const {
    const uint32_t first_step = steps * split / cut.splits;
    const uint32_t slab = steps * (split + 1) / cut.splits - first_step;
    const uint32_t tiles = place < cut.tiles ? (cut.tiles - place + cut.blocks - 1) / cut.blocks : 0;
    const uint32_t items = tiles * slab;
    const auto range = [&](uint32_t w) { return items * w / kWarps; };
    const uint32_t begin = range(warp), end = range(warp + 1);

    // The loop covers as many steps as it takes for a piece to meet its buffer again.
    constexpr int kDepth = Fragments::kDepth / kM, kItems = std::lcm(kDepth, kPieces) / kPieces;
    Loaded buffer[kDepth];
    uint32_t wanted = end - begin;  // steps not asked for completely
    Cursor load{begin / slab, begin % slab};
    Tile load_tile = locate(load.local);
    const auto issue = [&](Loaded& slot, int piece) {
      if (wanted == 0) return;
      fetch(load_tile, first_step + load.step, piece, slot);
      if (piece + 1 < kPieces) return;
      --wanted;
      if (++load.step < slab) return;
      load.step = 0;
      load_tile = locate(++load.local);
    };
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) issue(buffer[depth], depth % kPieces);
    wait_for_predecessor();
    release_successor();
    stage(first_step, slab);

    Sums sums = {};
    bool is_head = begin % slab != 0;             // the tile began in an earlier warp
    if (begin == end) put(sums, heads_of(warp));  // without work of its own it still counts in the tile around it
    Cursor use{begin / slab, begin % slab};
    for (uint32_t item = begin; item < end; item += kItems) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        if (i > 0 && item + i >= end) break;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          Loaded& slot = buffer[(i * kPieces + piece) % kDepth];
          multiply(slot, activations + (use.step * kBatchStepChunks + piece * kChunks) * kN * 32, sums);
          issue(slot, (piece + kDepth) % kPieces);
        }
        const bool complete = ++use.step == slab;
        if (!complete && !(item + i + 1 == end && is_head)) continue;
        if (is_head) {
          put(sums, heads_of(warp));
          is_head = false;
        } else {
          finish(use.local, sums);
        }
        clear(sums);
        if (complete) {
          use.step = 0;
          ++use.local;
        }
      }
    }
    __syncthreads();
    // A tile that began here and went on in the warps after this one.
    const uint32_t tile_begin = use.local * slab, tile_end = tile_begin + slab;
    if (begin < end && tile_begin >= begin && tile_begin < end && tile_end > end) {
      for (uint32_t w = warp + 1; w < kWarps && range(w) < tile_end; ++w) add(heads_of(w), sums);
      finish(use.local, sums);
    }
    if (job.largest != nullptr) {
      __syncthreads();
      for (uint32_t n = threadIdx.x; n < job.rows; n += kThreads) {
        if (largest[n] != 0) atomicMax(job.largest + n, largest[n]);
      }
    }
  }

  __device__ float4* heads_of(uint32_t w) const { return heads + w * kM * kN * 32; }
  static __device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) {
      float(&s)[4] = sums[i / kN][i % kN];
      s[0] = s[1] = s[2] = s[3] = 0.0f;
    }
  }
  __device__ __forceinline__ void put(const Sums& sums, float4* to) const {
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) {
      const float(&s)[4] = sums[i / kN][i % kN];
      to[i * 32 + lane] = make_float4(s[0], s[1], s[2], s[3]);
    }
  }
  __device__ __forceinline__ void add(const float4* from, Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) {
      const float4 v = from[i * 32 + lane];
      float(&s)[4] = sums[i / kN][i % kN];
      s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
    }
  }

  // The sums of a tile over this block's columns are complete.
  __device__ __forceinline__ void finish(uint32_t local, Sums& sums) const {
    if (cut.splits > 1) {
      const uint32_t tile = place + local * cut.blocks;
      constexpr uint32_t kTileVectors = kM * kN * 32;
      auto* partial =
          reinterpret_cast<float4*>(scratch.partial) + static_cast<uint64_t>(tile) * cut.splits * kTileVectors;
      put(sums, partial + split * kTileVectors);
      __threadfence();
      __syncwarp();
      uint32_t arrived = 0;
      if (lane == 0) arrived = atomicAdd(scratch.counters + tile, 1);
      if (__shfl_sync(0xffffffffu, arrived, 0) != cut.splits - 1) return;
      __threadfence();
      if (lane == 0) scratch.counters[tile] = 0;
      clear(sums);
      for (uint32_t s = 0; s < cut.splits; ++s) add_fresh(partial + s * kTileVectors, sums);
    }
    store(locate(local), sums);
  }
  // As add(), of what other SMs wrote: past L1.
  __device__ __forceinline__ void add_fresh(const float4* from, Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) {
      const float4 v = __ldcg(from + i * 32 + lane);
      float(&s)[4] = sums[i / kN][i % kN];
      s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
    }
  }

  // The results of a tile: lane 4 g + t has weight rows g and g + 8 of activation rows 2 t and 2 t + 1. Not unrolled,
  // because gelu and soft-cap would fill the instruction cache; the sums move down instead, as registers have no index.
  __device__ __forceinline__ void store(const Tile& tile, Sums& sums) const {
#pragma unroll 1
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const uint32_t row = n * kBatchTileRows + lane % 4 * 2 + e;
        const float factor = scale[row];
        float most = 0.0f;
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const float first = sums[m][0][e] * factor, second = sums[m][0][2 + e] * factor;
          const uint32_t output = tile.row + (geglu ? 8 : 16) * m + lane / 4;
          if (geglu) {
            most = max_bits(most, put_result(0, output, row, gelu(first) * second));
          } else {
            most = max_bits(most, put_result(tile.part, output, row, first));
            most = max_bits(most, put_result(tile.part, output + 8, row, second));
          }
        }
        if (job.largest != nullptr) note_largest(row, most);
      }
#pragma unroll
      for (int i = 4; i < kN * 4; ++i) {
#pragma unroll
        for (int m = 0; m < kM; ++m) sums[m][i / 4 - 1][i % 4] = sums[m][i / 4][i % 4];
      }
    }
  }
  // Bit patterns of magnitudes compare as the magnitudes do, and NaN above all.
  static __device__ float max_bits(float a, float b) {
    return __uint_as_float(max(__float_as_uint(a), __float_as_uint(b)));
  }
  // Stores one result and returns its magnitude; 0 outside the matrix.
  __device__ __forceinline__ float put_result(uint32_t p, uint32_t output, uint32_t row, float v) const {
    const MatvecPart& part = job.part[p];
    if (output >= part.weights.rows || row >= job.rows) return 0.0f;
    if (job.output == MatvecOutput::kGeluTimes) {
      v = gelu(v) * job.factors[static_cast<uint64_t>(row) * job.factors_leading + output];
    } else if (job.output == MatvecOutput::kSoftcap) {
      if (!isfinite(v)) *job.non_finite = 1;
      if (job.cap > 0.0f) v = job.cap * tanhf(v / job.cap);
    }
    part.out[static_cast<uint64_t>(row) * part.leading + output] = v;
    return fabsf(v);
  }
  __device__ __forceinline__ void note_largest(uint32_t row, float most) const {
#pragma unroll
    for (int offset = 4; offset < 32; offset <<= 1) most = max_bits(most, __shfl_xor_sync(0xffffffffu, most, offset));
    if (lane < 4 && row < job.rows) atomicMax(largest + row, __float_as_uint(most));
  }
};

// All parts of a job have the same packing here.
template <typename Fragments, typename Variant>
__global__ void __launch_bounds__(Variant::kThreads, Variant::kBlocks)
    batch_product_kernel(const __grid_constant__ BatchJob job, const __grid_constant__ BatchCut cut,
                         const __grid_constant__ BatchScratch scratch, uint32_t slab_bytes) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float scale[kBatchRows];
  __shared__ uint32_t largest[kBatchRows];
  const BatchBlock<Fragments, Variant> block{job,
                                             cut,
                                             scratch,
                                             reinterpret_cast<uint4*>(memory),
                                             reinterpret_cast<float4*>(memory + slab_bytes),
                                             scale,
                                             largest,
                                             threadIdx.x / 32,
                                             threadIdx.x % 32,
                                             job.part[0].weights.steps,
                                             blockIdx.x % cut.splits,
                                             blockIdx.x / cut.splits,
                                             job.output == MatvecOutput::kGeglu};
  block.run();
}

template <typename Fragments>
void launch_batch_product(const BatchJob& job, const BatchCut& cut, const BatchScratch& scratch, const Launch& how) {
  const uint32_t steps = job.part[0].weights.steps;
  const uint32_t slab = (steps + cut.splits - 1) / cut.splits;
  const size_t shared_bytes = batch_shared_bytes(slab, job.rows);
  const auto start = [&](auto variant) {
    using Variant = decltype(variant);
    const auto kernel = batch_product_kernel<Fragments, Variant>;
    allow_shared_memory(kernel, shared_bytes, "batch_product");  // 48 KB are shared with the kernel's own arrays
    launch("batch_product", kernel, dim3(cut.splits * cut.blocks), dim3(Variant::kThreads), shared_bytes, how, job, cut,
           scratch, batch_slab_bytes(slab, job.rows));
  };
  switch (batch_tiles(job.rows)) {
    case 1:
      return start(BatchVariant<1, 1>{});
    case 2:
      return start(BatchVariant<2, 1>{});
    case 4:
      return start(BatchVariant<4, 1>{});
    default:
      return start(BatchVariant<8, 2>{});
  }
}

// Instantiated a few packings per translation unit.
void batch_product_8bit(const BatchJob& job, const BatchCut& cut, const BatchScratch& scratch, const Launch& how);
void batch_product_4bit(const BatchJob& job, const BatchCut& cut, const BatchScratch& scratch, const Launch& how);
void batch_product_6bit(const BatchJob& job, const BatchCut& cut, const BatchScratch& scratch, const Launch& how);
void batch_product_float(const BatchJob& job, const BatchCut& cut, const BatchScratch& scratch, const Launch& how);

}  // namespace carat::cuda
