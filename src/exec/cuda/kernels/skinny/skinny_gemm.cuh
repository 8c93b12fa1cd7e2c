#pragma once

// The batched product of quantised weights (device code): out[n][o] = sum_k W[o][k] x[n][k] for up to 64 rows x.
//
//   mma:   m16n8k16, 16 weight rows (made fp16 in registers) times 8 rows of activations (fp16, in shared memory)
//   warp:  a tile of 16 kM weight rows times all rows of activations; weights come straight from memory into registers,
//          a step ahead. For GEGLU the 16 rows are 8 gate rows and the 8 up rows that belong to them: both in one lane
//   block: one per SM. It keeps the activations of one range of columns in shared memory; its (tile, step) pairs in
//          order are cut into equal ranges, one per warp, and a tile that ends up in several warps is put together at
//          the end
//   grid:  splits (ranges of columns) times blocks, at most one block an SM; weight row tiles are dealt out to the
//          blocks of a split in turn. Of the warps that have some of a tile the last adds the ranges up (8 rows), or
//          the blocks that have the same tiles meet and share that work (more rows); always in the same order
//
// Bound by HBM for few rows: every weight byte is read once. At 64 rows the tensor cores are nearly as busy (16 mma for
// 544 bytes of Q8_0), and the activations of wide matrices no longer fit one SM: hence the splits.
#include "exec/cuda/kernels/ptx/mma.cuh"
#include "exec/cuda/kernels/skinny/skinny_fragments.cuh"
#include "exec/cuda/kernels/skinny/skinny_gemm.h"
#include "exec/cuda/kernels/skinny/skinny_rows.cuh"

namespace carat::cuda {

// One instantiation: kN tiles of 8 activation rows, kM tiles of 16 weight rows a warp. With 64 rows two weight tiles
// share each read of the activations; shared memory could not deliver them otherwise.
template <int kTilesN, int kTilesM>
struct SkinnyVariant {
  static constexpr int kN = kTilesN, kM = kTilesM;
  static constexpr uint32_t kWarps = kM == 1 ? 16 : 8;
  static constexpr uint32_t kThreads = 32 * kWarps;
};
constexpr uint32_t skinny_weight_tiles(uint32_t rows) { return rows > 32 ? 2 : 1; }

// Shared memory: activations of the slab, then the sums of tiles that span warps.
constexpr uint32_t skinny_slab_bytes(uint32_t steps, uint32_t rows) {
  return steps * kSkinnyStepChunks * skinny_tiles(rows) * 32 * 16;
}
constexpr uint32_t skinny_heads_bytes(uint32_t rows) { return 16 * skinny_tiles(rows) * 32 * 16; }
constexpr uint32_t skinny_shared_bytes(uint32_t steps, uint32_t rows) {
  return skinny_slab_bytes(steps, rows) + skinny_heads_bytes(rows);
}

template <typename Fragments, typename Variant>
struct SkinnyBlock {
  static constexpr int kN = Variant::kN, kM = Variant::kM;
  static constexpr uint32_t kWarps = Variant::kWarps, kThreads = Variant::kThreads;
  static constexpr int kChunks = Fragments::kChunks, kPieces = static_cast<int>(kSkinnyStepChunks) / kChunks;
  using Sums = float[kM][kN][4];
  using Loaded = typename Fragments::Regs[2 * kM];
  using Sources = typename Fragments::Source[2 * kM];

  const SkinnyJob& job;
  const SkinnyCut& cut;
  const SkinnyScratch& scratch;
  uint4* activations;  // [slab * 8][kN][32]
  float4* heads;       // [warps][kM][kN][32]: what a warp found of a tile that began in the warp before
  float* scale;        // [64]
  float* inverse;      // [64]
  uint32_t* largest;   // [64]
  uint32_t warp, lane, steps, split, place;
  bool geglu;

  // Where a tile lies: the part and its first row there (GEGLU: of both parts).
  struct Tile {
    uint32_t part, row;
  };
  __device__ Tile locate(uint32_t local) const {
    const uint32_t tile = place + local * cut.blocks;
    if (geglu) return {0, tile * 8 * kM};
    const uint32_t part = (tile >= cut.first[1] ? 1 : 0) + (tile >= cut.first[2] ? 1 : 0);
    return {part, (tile - cut.first[part]) * 16 * kM};
  }

  // Where this lane reads its rows of a tile. Rows beyond the matrix repeat its last one; their results go nowhere.
  __device__ __forceinline__ void aim(uint32_t local, uint32_t first_step, Sources& to) const {
    const Tile tile = locate(local);
#pragma unroll
    for (int r = 0; r < 2 * kM; ++r) {
      const PackedView& w = job.part[geglu ? r % 2 : tile.part].weights;
      const uint32_t row = tile.row + (geglu ? r / 2 * 8 : r * 8) + lane / 4;
      to[r] = Fragments::source(w, static_cast<uint64_t>(min(row, w.rows - 1)) * steps + first_step, lane % 4);
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
    if (threadIdx.x < kSkinnyRows) {
      const uint32_t n = threadIdx.x;
      float factor = n < job.rows ? 1.0f : 0.0f;
      if (n < job.rows && job.input.fragments != nullptr) factor = job.input.scale[n];
      if (n < job.rows && job.floats_largest != nullptr) {
        factor = skinny_scale(__uint_as_float(job.floats_largest[n]));
      }
      largest[n] = 0;
      scale[n] = factor;
      inverse[n] = 1.0f / factor;
    }
    // Every block of a split reads the same activations: each starts elsewhere, so that they do not all ask the same
    // part of L2 at the same time.
    if (job.input.fragments != nullptr) {
      const uint32_t stride = job.input.tiles * 32, chunks = slab * kSkinnyStepChunks * kN * 32;
      const uint32_t turn = chunks / 32 * place / cut.blocks * 32;
      const uint4* from = reinterpret_cast<const uint4*>(job.input.fragments) + first_step * kSkinnyStepChunks * stride;
      const uint32_t to = shared_address(activations);
#pragma unroll 1
      for (uint32_t j = threadIdx.x; j < chunks; j += kThreads) {
        const uint32_t i = j + turn < chunks ? j + turn : j + turn - chunks;
        copy_async(to + i * 16, from + i / (kN * 32) * stride + i % (kN * 32), true);
      }
      copy_async_commit();
      copy_async_wait<0>();
    } else {
      __syncthreads();  // the scales
      const uint32_t cols = job.part[0].weights.cols, row_chunks = slab * (kStep / 8), chunks = row_chunks * job.rows;
      const uint32_t turn = chunks / 32 * place / cut.blocks * 32;
#pragma unroll 4
      for (uint32_t j = threadIdx.x; j < chunks; j += kThreads) {
        const uint32_t i = j + turn < chunks ? j + turn : j + turn - chunks;
        const uint32_t n = i / row_chunks, c = i % row_chunks * 8, column = first_step * kStep + c;
        uint4 chunk = make_uint4(0, 0, 0, 0);
        if (column < cols) {
          const float* row = job.floats + static_cast<uint64_t>(n) * job.floats_leading;
          chunk = skinny_chunk(columns4(row, column, cols), columns4(row, column + 4, cols), inverse[n]);
        }
        activations[skinny_place(c, n, kN)] = chunk;
      }
    }
    __syncthreads();
  }
  static __device__ float4 columns4(const float* row, uint32_t column, uint32_t cols) {
    if (column + 4 <= cols) return *reinterpret_cast<const float4*>(row + column);
    float values[4] = {};
    for (uint32_t c = 0; c < 4; ++c) values[c] = column + c < cols ? row[column + c] : 0.0f;
    return make_float4(values[0], values[1], values[2], values[3]);
  }

  __device__ __forceinline__ void run() const {
    const uint32_t first_step = steps * split / cut.splits;
    const uint32_t slab = steps * (split + 1) / cut.splits - first_step;
    const uint32_t tiles = place < cut.tiles ? (cut.tiles - place + cut.blocks - 1) / cut.blocks : 0;
    const uint32_t items = tiles * slab;
    const auto range = [&](uint32_t w) { return items * w / kWarps; };
    const uint32_t begin = range(warp), end = range(warp + 1);

    // A step's worth of weights is under way (of fp32 half of that); a piece's registers are filled again once used.
    constexpr int kDepth = kPieces > 4 ? 4 : kPieces;
    Loaded buffer[kDepth];
    uint32_t asked = begin, load_local = begin / slab, load_step = begin % slab;
    Sources sources;
    aim(load_local, first_step, sources);
    const auto issue = [&](Loaded& slot, int piece) {
      if (asked == end) return;
#pragma unroll
      for (int r = 0; r < 2 * kM; ++r) Fragments::load(sources[r], load_step, piece, slot[r]);
      if (piece + 1 < kPieces) return;
      ++asked;
      if (++load_step < slab) return;
      load_step = 0;
      if (asked < end) aim(++load_local, first_step, sources);
    };
#pragma unroll
    for (int piece = 0; piece < kDepth; ++piece) issue(buffer[piece], piece);
    wait_for_predecessor();
    release_successor();
    stage(first_step, slab);

    Sums sums = {};
    bool is_head = begin % slab != 0;             // the tile began in an earlier warp
    if (begin == end) put(sums, heads_of(warp));  // without work of its own it still counts in the tile around it
    uint32_t local = begin / slab, step = begin % slab;
    bool gathered = false;
    // One place where tiles are completed: the code of a kernel has to be fetched before it runs.
    for (uint32_t item = begin;;) {
      if (item < end) {
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          Loaded& slot = buffer[piece % kDepth];
          multiply(slot, activations + (step * kSkinnyStepChunks + piece * kChunks) * kN * 32, sums);
          issue(slot, (piece + kDepth) % kPieces);
        }
        ++item;
        const bool complete = ++step == slab;
        if (!complete && !(item == end && is_head)) continue;
        if (is_head) {
          put(sums, heads_of(warp));
          clear(sums);
          is_head = false;
          if (complete) step = 0, ++local;
          continue;
        }
      } else {
        if (gathered) break;
        gathered = true;
        __syncthreads();
        // A tile that began here and went on in the warps after this one.
        const uint32_t tile_begin = local * slab, tile_end = tile_begin + slab;
        if (begin == end || tile_begin < begin || tile_begin >= end || tile_end <= end) break;
        for (uint32_t w = warp + 1; w < kWarps && range(w) < tile_end; ++w) add(heads_of(w), sums);
      }
      finish(local, sums);
      clear(sums);
      step = 0;
      ++local;
    }
    if (kN > 1 && cut.splits > 1) {
      meet();
      gather(tiles);
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

  // The sums of a tile over this block's columns are complete. For 8 rows of activations the last warp that has some of
  // a tile adds its ranges up: one round trip to L2. More rows are too much for one warp; see gather().
  __device__ __forceinline__ void finish(uint32_t local, Sums& sums) const {
    if (cut.splits == 1) return store(locate(local), sums);
    put(sums, partial_of(local, split));
    if constexpr (kN == 1) {
      uint32_t* counter = scratch.counters + place + local * cut.blocks;
      __threadfence();
      __syncwarp();
      uint32_t arrived = 0;
      if (lane == 0) arrived = atomicAdd(counter, 1);
      if (__shfl_sync(0xffffffffu, arrived, 0) != cut.splits - 1) return;
      __threadfence();
      if (lane == 0) *counter = 0;
      add_up(local, 0);
    }
  }
  __device__ float4* partial_of(uint32_t local, uint32_t of_split) const {
    const uint64_t tile = place + local * cut.blocks;
    return reinterpret_cast<float4*>(scratch.partial) + (tile * cut.splits + of_split) * (kM * kN * 32);
  }

  // Adds the sums of all ranges of columns up, always in the same order, for activation rows 8 n and following of a
  // tile, and stores the results.
  __device__ __forceinline__ void add_up(uint32_t local, uint32_t n) const {
    constexpr uint32_t kSkinny = 8;  // loads in flight
    float total[kM][4] = {};
#pragma unroll 1
    for (uint32_t first = 0; first < cut.splits; first += kSkinny) {
      float4 loaded[kM][kSkinny];
#pragma unroll
      for (uint32_t i = 0; i < kM * kSkinny; ++i) {
        const uint32_t of_split = min(first + i % kSkinny, cut.splits - 1);
        // Written by other SMs: past L1.
        loaded[i / kSkinny][i % kSkinny] = __ldcg(partial_of(local, of_split) + (i / kSkinny * kN + n) * 32 + lane);
      }
#pragma unroll
      for (uint32_t i = 0; i < kM * kSkinny; ++i) {
        if (first + i % kSkinny >= cut.splits) continue;
        const float4& v = loaded[i / kSkinny][i % kSkinny];
        float(&t)[4] = total[i / kSkinny];
        t[0] += v.x, t[1] += v.y, t[2] += v.z, t[3] += v.w;
      }
    }
    store_rows_of(locate(local), n, total);
  }

  // Waits until every block that shares this one's tiles has its sums in memory. All of them are running: there are no
  // more blocks than SMs. The last one to leave clears the counters for the next product.
  __device__ __forceinline__ void meet() const {
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t* arrived = scratch.counters + 2 * place;
      __threadfence();
      atomicAdd(arrived, 1);
      while (load_acquire(arrived) < cut.splits) {
      }
      if (atomicAdd(arrived + 1, 1) == cut.splits - 1) arrived[0] = arrived[1] = 0;
    }
    __syncthreads();
  }
  // The blocks that share tiles share the work of adding up too: a warp takes 8 activation rows of a tile at a time.
  __device__ __forceinline__ void gather(uint32_t tiles) const {
#pragma unroll 1
    for (uint32_t unit = split * kWarps + warp; unit < tiles * kN; unit += cut.splits * kWarps) {
      add_up(unit / kN, unit % kN);
    }
  }

  // The results of a tile: lane 4 g + t has weight rows g and g + 8 of activation rows 2 t and 2 t + 1. A tile of
  // activation rows at a time, to keep the code short: the sums move down, as registers have no index.
  __device__ __forceinline__ void store(const Tile& tile, Sums& sums) const {
#pragma unroll 1
    for (uint32_t n = 0; n < kN; ++n) {
      float results[kM][4];
#pragma unroll
      for (int i = 0; i < 4 * kM; ++i) results[i / 4][i % 4] = sums[i / 4][0][i % 4];
      store_rows_of(tile, n, results);
#pragma unroll
      for (int i = 4; i < kN * 4; ++i) {
#pragma unroll
        for (int m = 0; m < kM; ++m) sums[m][i / 4 - 1][i % 4] = sums[m][i / 4][i % 4];
      }
    }
  }
  // Of activation rows 8 n and following.
  __device__ __forceinline__ void store_rows_of(const Tile& tile, uint32_t n, float (&results)[kM][4]) const {
    const uint32_t row = n * kSkinnyTileRows + lane % 4 * 2;
    const float factor[2] = {scale[row], scale[row + 1]};
#pragma unroll
    for (int i = 0; i < 4 * kM; ++i) results[i / 4][i % 4] *= factor[i % 2];
    if (geglu) {
      store_geglu(tile.row + lane / 4, row, results);
    } else {
      store_rows(tile.part, tile.row + lane / 4, row, results);
    }
  }

  __device__ __forceinline__ void store_geglu(uint32_t output, uint32_t row, const float (&results)[kM][4]) const {
    float most[2] = {};
#pragma unroll
    for (int i = 0; i < 2 * kM; ++i) {
      const float(&s)[4] = results[i / 2];
      const float v = gelu(s[i % 2]) * s[2 + i % 2];
      if (put_result(job.part[0], output + i / 2 * 8, row + i % 2, v)) most[i % 2] = max_bits(most[i % 2], fabsf(v));
    }
    note_largest(row, most);
  }
  __device__ __forceinline__ void store_rows(uint32_t p, uint32_t output, uint32_t row,
                                             const float (&results)[kM][4]) const {
    const GemvPart& part = job.part[p];
    float most[2] = {};
#pragma unroll
    for (int i = 0; i < 4 * kM; ++i) {
      const uint32_t o = output + i / 2 * 8, r = row + i % 2;
      float v = results[i / 4][i % 4];
      if (job.output != GemvOutput::kStore) v = transformed(v, o, r, part.weights.rows);
      if (put_result(part, o, r, v)) most[i % 2] = max_bits(most[i % 2], fabsf(v));
    }
    if (job.largest != nullptr) note_largest(row, most);
  }
  __device__ __forceinline__ float transformed(float v, uint32_t output, uint32_t row, uint32_t outputs) const {
    if (output >= outputs || row >= job.rows) return 0.0f;
    if (job.output == GemvOutput::kGeluTimes) {
      return gelu(v) * job.factors[static_cast<uint64_t>(row) * job.factors_leading + output];
    }
    if (!isfinite(v)) job.non_finite[row] = 1;
    return job.cap > 0.0f ? job.cap * tanhf(v / job.cap) : v;
  }
  // Whether there is such a result.
  __device__ __forceinline__ bool put_result(const GemvPart& part, uint32_t output, uint32_t row, float v) const {
    const bool inside = output < part.weights.rows && row < job.rows;
    if (inside) part.out[static_cast<uint64_t>(row) * part.leading + output] = v;
    return inside;
  }
  // Bit patterns of magnitudes compare as the magnitudes do, and NaN above all.
  static __device__ float max_bits(float a, float b) {
    return __uint_as_float(max(__float_as_uint(a), __float_as_uint(b)));
  }
  // Of activation rows `row` and the next, in the lanes that share them.
  __device__ __forceinline__ void note_largest(uint32_t row, const float (&values)[2]) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float most = values[e];
#pragma unroll
      for (int offset = 4; offset < 32; offset <<= 1) most = max_bits(most, __shfl_xor_sync(0xffffffffu, most, offset));
      if (lane < 4) atomicMax(largest + row + e, __float_as_uint(most));
    }
  }
};

// All parts of a job have the same packing here.
template <typename Fragments, typename Variant>
__global__ void __launch_bounds__(Variant::kThreads, 1)
    skinny_gemm_kernel(const __grid_constant__ SkinnyJob job, const __grid_constant__ SkinnyCut cut,
                       const __grid_constant__ SkinnyScratch scratch, uint32_t slab_bytes) {
  CARAT_BLOCK_MEMORY(16, unsigned char, memory);
  CARAT_BLOCK_ARRAY(float, scale, kSkinnyRows);
  CARAT_BLOCK_ARRAY(float, inverse, kSkinnyRows);
  CARAT_BLOCK_ARRAY(uint32_t, largest, kSkinnyRows);
  const SkinnyBlock<Fragments, Variant> block{job,
                                              cut,
                                              scratch,
                                              reinterpret_cast<uint4*>(memory),
                                              reinterpret_cast<float4*>(memory + slab_bytes),
                                              scale,
                                              inverse,
                                              largest,
                                              threadIdx.x / 32,
                                              threadIdx.x % 32,
                                              job.part[0].weights.steps,
                                              blockIdx.x % cut.splits,
                                              blockIdx.x / cut.splits,
                                              job.output == GemvOutput::kGeglu};
  block.run();
}

template <typename Fragments>
void launch_skinny_gemm(const SkinnyJob& job, const SkinnyCut& cut, const SkinnyScratch& scratch,
                        const LaunchConfig& launch) {
  const uint32_t steps = job.part[0].weights.steps;
  const uint32_t slab = (steps + cut.splits - 1) / cut.splits;
  const size_t shared_bytes = skinny_shared_bytes(slab, job.rows);
  const auto start = [&](auto variant) {
    using Variant = decltype(variant);
    const auto kernel = skinny_gemm_kernel<Fragments, Variant>;
    allow_shared_memory(kernel, shared_bytes, "batch_product");  // 48 KB are shared with the kernel's own arrays
    launch_kernel("batch_product", kernel, dim3(cut.splits * cut.blocks), dim3(Variant::kThreads), shared_bytes, launch,
                  job, cut, scratch, skinny_slab_bytes(slab, job.rows));
  };
  switch (skinny_tiles(job.rows)) {
    case 1:
      return start(SkinnyVariant<1, 1>{});
    case 2:
      return start(SkinnyVariant<2, 1>{});
    case 4:
      return start(SkinnyVariant<4, 1>{});
    default:
      return start(SkinnyVariant<8, 2>{});
  }
}

// Instantiated a few packings per translation unit.
void skinny_gemm_8bit(const SkinnyJob& job, const SkinnyCut& cut, const SkinnyScratch& scratch,
                      const LaunchConfig& launch);
void skinny_gemm_4bit(const SkinnyJob& job, const SkinnyCut& cut, const SkinnyScratch& scratch,
                      const LaunchConfig& launch);
void skinny_gemm_6bit(const SkinnyJob& job, const SkinnyCut& cut, const SkinnyScratch& scratch,
                      const LaunchConfig& launch);
void skinny_gemm_float(const SkinnyJob& job, const SkinnyCut& cut, const SkinnyScratch& scratch,
                       const LaunchConfig& launch);

}  // namespace carat::cuda
