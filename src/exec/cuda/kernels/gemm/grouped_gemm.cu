// Tensor-core product over ragged groups of rows: out[i] = a[source[i]] w[expert of i]^T, the expert products of prompt
// chunks. One group is a plain matrix product.
//
//   block: 4 warps (2 x 2) compute a tile of BM x 128 results; a warp BM / 2 x 64 as 16 x 8 tiles of mma.m16n8k16
//   k:     pieces of 64 columns of both operands pass through a ring in shared memory, filled by cp.async ahead of use
//   grid:  an upper bound of the tiles, because the groups' sizes are known on the device only; a block finds its group
//          by itself and returns when there is none left
//
//   ring slot: A [BM][64] bf16 | W [128][64] bf16; 16-byte piece c of row r lies at piece c ^ (r % 8), so that neither
//   cp.async nor ldmatrix meets a bank conflict
//
// With few rows per group the weights' way from memory bounds it (each is read about once: the row tiles of a group
// that need the same weights are neighbours in the grid), with many the tensor cores. The tile height is a pure
// function of the mean group size. A tile of 128 rows in 4 warps and 96 KB lets two blocks share a Hopper SM, so that
// one computes while the other waits at its barrier, and still fits cards with 99 KB. Any n; k a multiple of 8; 16-byte
// aligned a, w and out.
#include <stdexcept>

#include "exec/cuda/kernels/moe/moe.h"
#include "exec/cuda/kernels/ptx/mma.cuh"

namespace carat::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTileColumns = 128;
constexpr int kTileDepth = 64;    // columns of a and w in one ring slot: rows of 128 bytes
constexpr int kWarpColumns = 64;  // of the results; 8 tiles of 8, whose bf16 results are 128 bytes a row
constexpr int kDepthSteps = kTileDepth / 16;
constexpr int kRowBytes = kTileDepth * 2;
constexpr int kRowsPerPass = kThreads / 8;  // rows of 8 pieces that the block copies at once
constexpr uint32_t kBand = 16;              // row tiles of a large group that pass over all its columns together
constexpr uint32_t kNoRow = 0xffffffffu;

template <int BM>
struct GroupedLayout {
  static constexpr int kSlots = BM == 128 ? 3 : 4;
  static constexpr int kRowTiles = BM / 32;  // 16-row tiles of a warp
  static constexpr int kWarpRows = BM / 2;
  static constexpr int kRowPasses = BM / kRowsPerPass;
  static constexpr int kColumnPasses = kTileColumns / kRowsPerPass;
  static constexpr int kWeightsOffset = BM * kRowBytes;
  static constexpr int kSlotBytes = (BM + kTileColumns) * kRowBytes;
  static constexpr int kSharedBytes = kSlots * kSlotBytes;
  static_assert(BM % 32 == 0 && BM >= 32);
  static_assert(kSharedBytes <= 99 * 1024);
  static_assert(BM * kTileColumns * 2 <= kSharedBytes);  // the results pass through shared memory on their way out
};

struct GroupedProduct {
  const __nv_bfloat16* a;   // [*, k]
  const uint32_t* source;   // [total] or null
  const __nv_bfloat16* w;   // [experts, n, k]
  const uint32_t* offsets;  // [experts + 1]
  uint32_t experts, n, k;
  __nv_bfloat16* out;  // [total, n]
};

// A block's share: rows [row, end) of the results, at most BM of them, and the columns from `column`.
struct GroupedTile {
  bool exists;
  uint32_t expert, row, end, column;
};

// c += a b, bf16 operands.
__device__ __forceinline__ void multiply_add_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Tiles are numbered group by group. Every warp finds the block's tile on its own, without a barrier: a lane counts the
// row tiles of experts / 32 neighbouring groups, a scan over the lanes tells which of them holds the tile.
template <int BM>
__device__ GroupedTile find_tile(const GroupedProduct& job, uint32_t block) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t column_tiles = (job.n + kTileColumns - 1) / kTileColumns;
  const uint32_t wanted = block / column_tiles;  // row tiles before the one we look for, rounded down to its group
  const uint32_t per_lane = (job.experts + 31) / 32;
  const uint32_t first = min(lane * per_lane, job.experts), last = min(first + per_lane, job.experts);
  uint32_t mine = 0;
  for (uint32_t e = first; e < last; ++e) mine += (job.offsets[e + 1] - job.offsets[e] + BM - 1) / BM;
  uint32_t scan = mine;
#pragma unroll
  for (int distance = 1; distance < 32; distance <<= 1) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, scan, distance);
    if (lane >= distance) scan += other;
  }
  uint32_t before = scan - mine;
  const uint32_t holder = __ballot_sync(0xffffffffu, before <= wanted && wanted < scan);
  if (holder == 0) return {};

  uint32_t expert = first, begin = 0, end = 0;
  if (before <= wanted && wanted < scan) {
    for (;; ++expert) {
      begin = job.offsets[expert];
      end = job.offsets[expert + 1];
      const uint32_t tiles = (end - begin + BM - 1) / BM;
      if (wanted < before + tiles) break;
      before += tiles;
    }
  }
  const int from = __ffs(static_cast<int>(holder)) - 1;
  expert = __shfl_sync(0xffffffffu, expert, from);
  begin = __shfl_sync(0xffffffffu, begin, from);
  end = __shfl_sync(0xffffffffu, end, from);
  before = __shfl_sync(0xffffffffu, before, from);

  // Within a group: bands of row tiles, in a band column by column. Blocks that run at the same time share weights, and
  // a band's rows of `a` stay in L2.
  const uint32_t index = block - before * column_tiles, row_tiles = (end - begin + BM - 1) / BM;
  const uint32_t band = index / (kBand * column_tiles), in_band = index % (kBand * column_tiles);
  const uint32_t band_rows = min(kBand, row_tiles - band * kBand);
  const uint32_t row = begin + (band * kBand + in_band % band_rows) * BM;
  return {true, expert, row, min(end, row + BM), in_band / band_rows * kTileColumns};
}

// What one thread copies: piece `piece` of every kRowsPerPass-th row of both operands.
template <int BM>
struct GroupedCopies {
  using Layout = GroupedLayout<BM>;
  const GroupedProduct& job;
  const __nv_bfloat16* weights;       // this thread's first row
  uint32_t rows[Layout::kRowPasses];  // of a
  uint32_t first_row, columns;        // first_row + 16 i < columns: that row of w exists
  uint32_t piece, destination;        // in a slot

  __device__ GroupedCopies(const GroupedProduct& product, const GroupedTile& tile) : job(product) {
    first_row = threadIdx.x / 8;
    piece = threadIdx.x % 8;
    columns = min(static_cast<uint32_t>(kTileColumns), job.n - tile.column);
    destination = first_row * kRowBytes + (piece ^ (first_row % 8)) * 16;
    weights = job.w + (static_cast<uint64_t>(tile.expert) * job.n + tile.column + first_row) * job.k;
#pragma unroll
    for (int i = 0; i < Layout::kRowPasses; ++i) {
      const uint32_t row = tile.row + first_row + i * kRowsPerPass;
      rows[i] = row >= tile.end ? kNoRow : job.source == nullptr ? row : job.source[row];
    }
  }

  // A quarter of slot `slot`'s copies for columns [64 step, 64 step + 64); what lies outside the operands becomes zero.
  __device__ void quarter(int part, uint32_t slot, uint32_t step) const {
    const uint32_t k0 = step * kTileDepth + piece * 8;
    const bool inside = k0 < job.k;
#pragma unroll
    for (int i = part * Layout::kRowPasses / 4; i < (part + 1) * Layout::kRowPasses / 4; ++i) {
      const bool valid = inside && rows[i] != kNoRow;
      copy_async(slot + destination + i * kRowsPerPass * kRowBytes,
                 valid ? job.a + static_cast<uint64_t>(rows[i]) * job.k + k0 : job.a, valid);
    }
#pragma unroll
    for (int i = part * Layout::kColumnPasses / 4; i < (part + 1) * Layout::kColumnPasses / 4; ++i) {
      const bool valid = inside && first_row + i * kRowsPerPass < columns;
      copy_async(slot + Layout::kWeightsOffset + destination + i * kRowsPerPass * kRowBytes,
                 valid ? weights + static_cast<uint64_t>(i * kRowsPerPass) * job.k + k0 : job.w, valid);
    }
  }
  __device__ void all(uint32_t slot, uint32_t step) const {
#pragma unroll
    for (int part = 0; part < 4; ++part) quarter(part, slot, step);
  }
};

// The operands of one k step of 16 in a warp's registers.
template <int kRowTiles>
struct Fragments {
  uint32_t a[kRowTiles][4];
  uint32_t w[kWarpColumns / 16][4];  // two tiles of 8 columns each

  // Addresses are this lane's for step 0 of the slot; a step is two pieces of 16 bytes, which the swizzle turns into an
  // exclusive or.
  __device__ void load(uint32_t a_address, uint32_t w_address, int step) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) load_matrices(a[i], (a_address ^ (step * 32)) + i * 16 * kRowBytes);
#pragma unroll
    for (int j = 0; j < kWarpColumns / 16; ++j) load_matrices(w[j], (w_address ^ (step * 32)) + j * 16 * kRowBytes);
  }
  __device__ void multiply(float (&acc)[kRowTiles][kWarpColumns / 8][4]) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kWarpColumns / 8; ++j) {
        multiply_add_bf16(acc[i][j], a[i], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
};

// Results of a warp through its part of shared memory, so that they leave as 16 bytes a lane, 128 bytes a row.
template <int kRowTiles>
__device__ void store_results(const GroupedProduct& job, const float (&acc)[kRowTiles][kWarpColumns / 8][4],
                              uint32_t shared, uint32_t first_row, uint32_t end, uint32_t first_column) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpColumns / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(acc[i][j][2 * half], acc[i][j][2 * half + 1]);
        store_shared(shared + (i * 16 + half * 8 + g) * kRowBytes + (j ^ g) * 16 + t * 4,
                     *reinterpret_cast<const uint32_t*>(&pair));
      }
    }
  }
  __syncwarp();
  const uint32_t piece = lane % 8, column = first_column + piece * 8;
  if (column >= job.n) return;
  for (uint32_t r = lane / 8; r < kRowTiles * 16 && first_row + r < end; r += 4) {
    const uint4 values = load_shared_16(shared + r * kRowBytes + (piece ^ (r % 8)) * 16);
    __nv_bfloat16* to = job.out + static_cast<uint64_t>(first_row + r) * job.n + column;
    if (job.n % 8 == 0) {
      *reinterpret_cast<uint4*>(to) = values;
    } else {
      const uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) {
        if (column + e < job.n) to[e] = __ushort_as_bfloat16(static_cast<unsigned short>(words[e / 2] >> (e % 2 * 16)));
      }
    }
  }
}

template <int BM>
__global__ void __launch_bounds__(kThreads, 2) grouped_gemm_kernel(const __grid_constant__ GroupedProduct job) {
  using Layout = GroupedLayout<BM>;
  extern __shared__ __align__(128) unsigned char memory[];
  wait_for_predecessor();
  release_successor();
  const GroupedTile tile = find_tile<BM>(job, blockIdx.x);
  if (!tile.exists) return;

  const GroupedCopies<BM> copies(job, tile);
  const uint32_t ring = shared_address(memory), steps = (job.k + kTileDepth - 1) / kTileDepth;
#pragma unroll
  for (uint32_t s = 0; s < Layout::kSlots - 1; ++s) {
    if (s < steps) copies.all(ring + s * Layout::kSlotBytes, s);
    copy_async_commit();
  }

  const uint32_t lane = threadIdx.x % 32, warp_m = threadIdx.x / 64, warp_n = threadIdx.x / 32 % 2;
  const uint32_t a_lane = (warp_m * Layout::kWarpRows + lane % 16) * kRowBytes + ((lane / 16) ^ (lane % 8)) * 16;
  const uint32_t w_lane = Layout::kWeightsOffset + (warp_n * kWarpColumns + lane / 16 * 8 + lane % 8) * kRowBytes +
                          ((lane / 8 % 2) ^ (lane % 8)) * 16;
  const uint32_t warp_row = tile.row + warp_m * Layout::kWarpRows;
  const bool active = warp_row < tile.end;  // in a short tile the lower warps only copy
  float acc[Layout::kRowTiles][kWarpColumns / 8][4] = {};
  uint32_t read_slot = 0, write_slot = Layout::kSlots - 1;
  for (uint32_t step = 0; step < steps; ++step) {
    copy_async_wait<Layout::kSlots - 2>();
    __syncthreads();  // this step's pieces are there, and nobody reads the slot that is written next
    const uint32_t slot = ring + read_slot * Layout::kSlotBytes, next = ring + write_slot * Layout::kSlotBytes;
    const uint32_t next_step = step + Layout::kSlots - 1;
    if (active) {
      Fragments<Layout::kRowTiles> fragments[2];
      fragments[0].load(slot + a_lane, slot + w_lane, 0);
#pragma unroll
      for (int s = 0; s < kDepthSteps; ++s) {
        if (s + 1 < kDepthSteps) fragments[(s + 1) % 2].load(slot + a_lane, slot + w_lane, s + 1);
        if (next_step < steps) copies.quarter(s, next, next_step);
        fragments[s % 2].multiply(acc);
      }
    } else if (next_step < steps) {
      copies.all(next, next_step);
    }
    copy_async_commit();
    read_slot = read_slot + 1 == Layout::kSlots ? 0 : read_slot + 1;
    write_slot = write_slot + 1 == Layout::kSlots ? 0 : write_slot + 1;
  }
  __syncthreads();  // the ring now serves as the results' way out
  if (!active) return;
  store_results<Layout::kRowTiles>(job, acc, ring + threadIdx.x / 32 * Layout::kWarpRows * kRowBytes, warp_row,
                                   min(tile.end, warp_row + Layout::kWarpRows), tile.column + warp_n * kWarpColumns);
}

template <int BM>
void launch_grouped_gemm(const GroupedProduct& job, uint32_t total, const LaunchConfig& launch) {
  // A group of c rows has at most c / BM + 1 row tiles, an empty one none.
  const uint32_t row_tiles = total / BM + (job.experts < total ? job.experts : total);
  const uint32_t column_tiles = (job.n + kTileColumns - 1) / kTileColumns;
  allow_shared_memory(grouped_gemm_kernel<BM>, GroupedLayout<BM>::kSharedBytes, "grouped_gemm");
  launch_kernel("grouped_gemm", grouped_gemm_kernel<BM>, dim3(row_tiles * column_tiles), dim3(kThreads),
                GroupedLayout<BM>::kSharedBytes, launch, job);
}

}  // namespace

void grouped_gemm(const __nv_bfloat16* a, const uint32_t* source, const __nv_bfloat16* w, const uint32_t* offsets,
                  uint32_t experts, uint32_t total, uint32_t n, uint32_t k, __nv_bfloat16* out,
                  const LaunchConfig& launch) {
  if (experts == 0 || k == 0 || k % 8 != 0) throw std::logic_error("internal check failed: grouped_gemm shape");
  const GroupedProduct job{a, source, w, offsets, experts, n, k, out};
  // The last tile of a group is half empty on average: higher tiles only where groups have several of them, or where
  // one high tile costs no more than the weights it waits for.
  const uint32_t mean_rows = total / experts;
  if (mean_rows <= 16) return launch_grouped_gemm<32>(job, total, launch);
  if (mean_rows < 96) return launch_grouped_gemm<64>(job, total, launch);
  launch_grouped_gemm<128>(job, total, launch);
}

}  // namespace carat::cuda
