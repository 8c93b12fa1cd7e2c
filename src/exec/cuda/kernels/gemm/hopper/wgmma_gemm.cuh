#pragma once

// out = a w^T by warpgroup products (sm_90a): weights of one packing, dequantised between shared memory and the
// registers of the tensor cores' first operand; activations bf16 in shared memory as the second.
//
//   block   warp 0: copies weights (TMA)      warp 1: copies activations (TMA)      warps 2, 3: gather them (cp.async)
//           warpgroups 1, 2: 64 weight rows each x width activation rows, fp32 sums in registers
//   rings   weights: slots of 128 rows x 256 columns as packed (bf16: 64 columns); activations: 4 slots of 32 KB, each
//           width rows x 64, 128 or 256 columns in blocks of 64 (rows of 128 bytes, 128-byte swizzle)
//   order   tiles of a group one after the other, those that share weights next to each other; a block takes every
//           gridDim-th tile and copies the next one's operands while it stores the last one's results
//
// Bound by the tensor cores from about 128 rows per group on, below by the packed weights' way from memory. The width
// is one of wgmma_tiles.h and a kernel of its own; what a tile computes beyond its group's rows or the part's weights
// is not stored.
#include "exec/cuda/kernels/gemm/hopper/ring_position.cuh"
#include "exec/cuda/kernels/gemm/hopper/wgmma_fragments.cuh"
#include "exec/cuda/kernels/gemm/hopper/wgmma_job.h"
#include "exec/cuda/kernels/ptx/architecture.cuh"
#include "exec/cuda/kernels/ptx/fence_proxy.cuh"
#include "exec/cuda/kernels/ptx/mbarrier.cuh"
#include "exec/cuda/kernels/ptx/setmaxnreg.cuh"
#include "exec/cuda/kernels/ptx/stmatrix.cuh"
#include "exec/cuda/kernels/ptx/tma.cuh"
#include "exec/cuda/kernels/ptx/wgmma.cuh"

namespace carat::cuda {

constexpr uint32_t kWgmmaActivationSlots = 4;
constexpr uint32_t kWgmmaActivationSlotBytes = kWgmmaMaxWidth * 128;
constexpr uint32_t kWgmmaStoreBytes = 2 * 32 * 128;  // of a warpgroup: two buffers of 32 rows of 64 results
constexpr int kGatherThreads = 64;
constexpr uint32_t kGatherLag = 2;                    // slots between the one being gathered and the one handed over
constexpr int kGatherBarrier = 1, kStoreBarrier = 2;  // named barriers; the second one and the next for the warpgroups

// Blocks of 64 columns that share an activation slot.
constexpr uint32_t wgmma_slot_blocks(uint32_t width) { return width <= 64 ? 4 : width <= 128 ? 2 : 1; }

using ActivationRing = RingPosition<kWgmmaActivationSlots>;

// Addresses in shared memory.
template <typename Weights>
struct WgmmaMemory {
  static constexpr uint32_t kWeightsAt = kWgmmaActivationSlots * kWgmmaActivationSlotBytes;
  static constexpr uint32_t kStoreAt = kWeightsAt + Weights::kSlots * Weights::kSlotBytes;
  static constexpr uint32_t kRowsAt = kStoreAt + 2 * kWgmmaStoreBytes;
  static constexpr uint32_t kOffsetsAt = kRowsAt + kWgmmaMaxWidth * 4;
  static constexpr uint32_t kStartsAt = kOffsetsAt + (kWgmmaMaxGroups + 4) * 4;
  static constexpr uint32_t kBarriersAt = kStartsAt + (kWgmmaMaxGroups + 4) * 4;
  static constexpr uint32_t kBytes = kBarriersAt + 8 * 2 * (kWgmmaActivationSlots + Weights::kSlots) + 1024;
  static_assert(Weights::kSlotBytes % 1024 == 0 && kBytes <= 227 * 1024);

  unsigned char* base;  // on a 1024-byte boundary, as the swizzle wants it

  __device__ uint32_t at(uint32_t offset) const { return shared_address(base) + offset; }
  __device__ uint32_t activations(uint32_t slot) const { return at(slot * kWgmmaActivationSlotBytes); }
  __device__ uint32_t weights(uint32_t slot) const { return at(kWeightsAt + slot * Weights::kSlotBytes); }
  __device__ uint32_t activations_full(uint32_t slot) const { return at(kBarriersAt + 8 * slot); }
  __device__ uint32_t activations_free(uint32_t slot) const { return activations_full(kWgmmaActivationSlots + slot); }
  __device__ uint32_t weights_full(uint32_t slot) const { return activations_full(2 * kWgmmaActivationSlots + slot); }
  __device__ uint32_t weights_free(uint32_t slot) const { return weights_full(Weights::kSlots + slot); }
  __device__ uint32_t* offsets() const { return reinterpret_cast<uint32_t*>(base + kOffsetsAt); }
  __device__ uint32_t* starts() const { return reinterpret_cast<uint32_t*>(base + kStartsAt); }
};

struct WgmmaTile {
  uint32_t group, row, end;     // rows [row, end) of the results, at most N
  uint32_t part, part_row;      // first weight row within the part
  uint32_t column, column_end;  // of the results
};

// Walks the tiles of this block. Every role walks by itself.
template <uint32_t N>
struct TileWalk {
  const WgmmaJob& job;
  const uint32_t* offsets;
  const uint32_t* starts;  // tiles before each group
  uint32_t index, group = 0;

  __device__ bool next(WgmmaTile& tile) {
    if (index >= starts[job.groups]) return false;
    while (index >= starts[group + 1]) ++group;
    const uint32_t first = offsets[group], rows = offsets[group + 1] - first;
    tile.group = group;
    const uint32_t across = wgmma_ceil(rows, N), in_group = index - starts[group];
    const uint32_t down = in_group / across;
    tile.row = first + in_group % across * N;
    tile.end = min(first + rows, tile.row + N);
    tile.part = 0;
    while (tile.part + 1 < job.parts && down >= job.part[tile.part + 1].first_tile) ++tile.part;
    const WgmmaJobPart& part = job.part[tile.part];
    const uint32_t tile_rows = job.geglu ? kWgmmaTileRows / 2 : kWgmmaTileRows;
    tile.part_row = (down - part.first_tile) * tile_rows;
    tile.column = part.column + tile.part_row;
    tile.column_end = part.column + part.rows;
    index += gridDim.x;
    return true;
  }
};

// Group sizes and the tiles before each group, by the whole block.
template <uint32_t N, typename Memory>
__device__ void count_tiles(const WgmmaJob& job, const Memory& memory) {
  __shared__ uint32_t warp_sums[kWgmmaMaxGroups / 32];
  const uint32_t thread = threadIdx.x, lane = thread % 32;
  uint32_t *offsets = memory.offsets(), *starts = memory.starts();
  for (uint32_t g = thread; g <= job.groups; g += blockDim.x) {
    offsets[g] = job.offsets != nullptr ? job.offsets[g] : g * job.total;
  }
  __syncthreads();
  uint32_t tiles = 0;
  if (thread < job.groups) {
    const uint32_t rows = offsets[thread + 1] - offsets[thread];
    tiles = wgmma_ceil(rows, N) * job.row_tiles;
  }
  uint32_t sum = tiles;
#pragma unroll
  for (int distance = 1; distance < 32; distance <<= 1) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (thread < kWgmmaMaxGroups && lane == 31) warp_sums[thread / 32] = sum;
  __syncthreads();
  if (thread < kWgmmaMaxGroups) {
    for (uint32_t w = 0; w < thread / 32; ++w) sum += warp_sums[w];
    if (thread < job.groups) starts[thread + 1] = sum;
    if (thread == 0) starts[0] = 0;
  }
  __syncthreads();
}

// Warp 0, one lane.
template <typename Weights, uint32_t N>
__device__ void copy_weights(const WgmmaJob& job, const WgmmaMemory<Weights>& memory, TileWalk<N> walk) {
  const uint32_t slots_per_tile = wgmma_ceil(job.blocks, Weights::kBlocks);
  RingPosition<Weights::kSlots> ring;
  for (WgmmaTile tile; walk.next(tile);) {
    for (uint32_t s = 0; s < slots_per_tile; ++s, ring.advance()) {
      const uint32_t full = memory.weights_full(ring.slot), slot = memory.weights(ring.slot);
      mbarrier_wait(memory.weights_free(ring.slot), ring.parity ^ 1);
      mbarrier_arrive_expect_tx(full, Weights::kSlotBytes);
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        // Gate rows above, up rows below; or simply 128 rows.
        const WgmmaJobPart& part = job.part[job.geglu ? half : tile.part];
        const uint32_t y = tile.group * part.stride + part.offset + tile.part_row + (job.geglu ? 0 : half * 64);
#pragma unroll
        for (uint32_t plane = 0; plane < Weights::kPlanes; ++plane) {
          tma_load(slot + plane * kWgmmaPlaneBytes + half * (kWgmmaPlaneBytes / 2), &part.quants, full,
                   (s * Weights::kPlanes + plane) * job.box_columns, y);
        }
        if constexpr (Weights::kScales) {
          tma_load(slot + Weights::kPlanes * kWgmmaPlaneBytes + half * (kWgmmaScaleBytes / 2), &part.scales, full,
                   s * 16, y);
        }
      }
    }
  }
}

// Warp 1, one lane: activations that already lie in order.
template <typename Weights, uint32_t N>
__device__ void copy_activations(const WgmmaJob& job, const WgmmaMemory<Weights>& memory, TileWalk<N> walk) {
  constexpr uint32_t kPerSlot = wgmma_slot_blocks(N);
  ActivationRing ring;
  for (WgmmaTile tile; walk.next(tile);) {
    for (uint32_t block = 0; block < job.blocks; block += kPerSlot, ring.advance()) {
      const uint32_t count = min(kPerSlot, job.blocks - block), full = memory.activations_full(ring.slot);
      mbarrier_wait(memory.activations_free(ring.slot), ring.parity ^ 1);
      mbarrier_arrive_expect_tx(full, count * N * 128);
      uint32_t to = memory.activations(ring.slot);
      for (uint32_t b = block; b < block + count; ++b) {
        for (uint32_t r = 0; r < N; r += kWgmmaWidthUnit, to += kWgmmaWidthUnit * 128) {
          tma_load(to, &job.activations, full, b * 64, tile.row + r);
        }
      }
    }
  }
}

// Warps 2 and 3: activations through the list of their rows, 16 bytes at a time; eight lanes copy one row. A slot is
// handed over kGatherLag slots later, when its copies have arrived: only then can they be ordered before wgmma's reads.
// Rows beyond the group's last repeat that one, and what comes of them is not stored.
template <typename Weights, uint32_t N>
__device__ void gather_activations(const WgmmaJob& job, const WgmmaMemory<Weights>& memory, TileWalk<N> walk) {
  constexpr uint32_t kPerSlot = wgmma_slot_blocks(N), kRowGroups = kGatherThreads / 8, kRows = N / kRowGroups;
  const uint32_t thread = threadIdx.x % kGatherThreads, piece = thread % 8, group = thread / 8;
  // The rows of a group of eight lanes lie together: rows group, group + 8 ... of the tile, four at a time.
  const uint32_t list = memory.at(WgmmaMemory<Weights>::kRowsAt), mine = list + group * kRows * 4;
  ActivationRing ring, handed;
  uint32_t pending = 0;
  const auto hand_over = [&] {
    fence_proxy_async();
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(memory.activations_full(handed.slot));
    handed.advance();
    --pending;
  };
  for (WgmmaTile tile; walk.next(tile);) {
    named_barrier<kGatherThreads>(kGatherBarrier);  // nobody reads the last tile's list any more
    for (uint32_t r = thread; r < N; r += kGatherThreads) {
      const uint32_t row = job.source[min(tile.row + r, tile.end - 1)];
      store_shared(list + (r % kRowGroups * kRows + r / kRowGroups) * 4, row * (job.k / 8));  // in 16 bytes
    }
    named_barrier<kGatherThreads>(kGatherBarrier);
    for (uint32_t block = 0; block < job.blocks; block += kPerSlot, ring.advance()) {
      mbarrier_wait(memory.activations_free(ring.slot), ring.parity ^ 1);
      uint32_t to = memory.activations(ring.slot) + group * 128 + (piece ^ group) * 16;
      for (uint32_t b = block; b < min(block + kPerSlot, job.blocks); ++b) {
        const uint4* from = reinterpret_cast<const uint4*>(job.a) + b * 8 + piece;
        const bool valid = b * 64 + piece * 8 < job.k;
        uint4 rows = load_shared_16(mine);
#pragma unroll
        for (uint32_t r = 0; r < kRows; r += 4) {
          const uint4 now = rows;
          if (r + 4 < kRows) rows = load_shared_16(mine + (r + 4) * 4);
          copy_async(to, valid ? from + now.x : from - piece, valid);
          copy_async(to + kRowGroups * 128, valid ? from + now.y : from - piece, valid);
          copy_async(to + 2 * kRowGroups * 128, valid ? from + now.z : from - piece, valid);
          copy_async(to + 3 * kRowGroups * 128, valid ? from + now.w : from - piece, valid);
          to += 4 * kRowGroups * 128;
        }
      }
      copy_async_commit();
      if (++pending > kGatherLag) {
        copy_async_wait<kGatherLag>();
        hand_over();
      }
    }
  }
  copy_async_wait<0>();
  while (pending > 0) hand_over();
}

// One consumer warpgroup.
template <typename Weights, int N>
struct Consumer {
  const WgmmaJob& job;
  const WgmmaMemory<Weights>& memory;
  uint32_t group, warp, lane;  // 0 or 1; of the warpgroup, 0 ... 3
  WgmmaRows rows;
  ActivationRing activations;
  RingPosition<Weights::kSlots> weights;
  uint32_t store_buffer = 0;

  __device__ Consumer(const WgmmaJob& product, const WgmmaMemory<Weights>& shared) : job(product), memory(shared) {
    group = threadIdx.x / 128 - 1;
    warp = threadIdx.x % 128 / 32;
    lane = threadIdx.x % 32;
    // Gate rows are rows g and the up rows to them rows g + 8 of the same warp: one lane gets both results.
    rows =
        job.geglu ? WgmmaRows{group * 32 + warp * 8 + lane / 4, 64} : WgmmaRows{group * 64 + warp * 16 + lane / 4, 8};
  }

  __device__ void arrive(uint32_t barrier) const {
    __syncwarp();
    if (lane == 0) mbarrier_arrive(barrier);
  }

  __device__ void begin_weights(Weights& fragments) const {
    mbarrier_wait(memory.weights_full(weights.slot), weights.parity);
    fragments.begin(memory.weights(weights.slot), rows);
  }
  __device__ void end_weights() {
    arrive(memory.weights_free(weights.slot));
    weights.advance();
  }

  // The operand of the next block of 64 columns: the `q`-th of its round of four.
  __device__ __forceinline__ void next_activations(uint32_t q, ActivationRing& reading, uint32_t& operand) const {
    if (q % wgmma_slot_blocks(N) != 0) {
      operand += N * 128;
      return;
    }
    mbarrier_wait(memory.activations_full(reading.slot), reading.parity);
    operand = memory.activations(reading.slot);
    reading.advance();
  }
  __device__ __forceinline__ void end_activations() {
    arrive(memory.activations_free(activations.slot));
    activations.advance();
  }
  __device__ __forceinline__ void issue(float (&sums)[N / 2], const uint32_t (&a)[4][4], uint32_t operand) const {
    wgmma_fence();
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) wgmma_bf16<N>(sums, a[i], wgmma_descriptor_k_major(operand + i * 32));
    wgmma_commit_group();
  }

  // Blocks of 64 columns in rounds of four: while the tensor cores work on one block, the weights of the next become
  // registers. Products under way must not meet a branch the compiler cannot see through, so what is left after the
  // last full round is done block by block.
  __device__ __forceinline__ void multiply(float (&sums)[N / 2]) {
    constexpr uint32_t kPerSlot = wgmma_slot_blocks(N);
    const uint32_t rounds = job.blocks / 4, rest = job.blocks % 4;
    uint32_t a[2][4][4];
    Weights fragments;
    ActivationRing reading = activations;  // `activations` follows as slots are given back
    uint32_t operand = 0;
    if (rounds > 0) {
      begin_weights(fragments);
      fragments.make(0, a[0]);
      for (uint32_t round = 0;; ++round) {
#pragma unroll
        for (uint32_t q = 0; q < 4; ++q) {
          next_activations(q, reading, operand);
          issue(sums, a[q % 2], operand);
          wgmma_wait_group<1>();  // the block before this one
          if (q % kPerSlot == 0 && (q > 0 || round > 0)) end_activations();
          if (q == 3 && round + 1 == rounds) break;
          if ((q + 1) % Weights::kBlocks == 0) {
            end_weights();
            begin_weights(fragments);
          }
          fragments.make((q + 1) % Weights::kBlocks, a[(q + 1) % 2]);
        }
        if (round + 1 == rounds) break;
      }
      wgmma_wait_group<0>();
      end_activations();
      end_weights();
    }
#pragma unroll
    for (uint32_t q = 0; q < 3; ++q) {
      if (q < rest) {
        if (q % Weights::kBlocks == 0) begin_weights(fragments);
        fragments.make(q % Weights::kBlocks, a[0]);
        next_activations(q, reading, operand);
        issue(sums, a[0], operand);
        wgmma_wait_group<0>();
        if ((q + 1) % kPerSlot == 0 || q + 1 == rest) end_activations();
        if ((q + 1) % Weights::kBlocks == 0 || q + 1 == rest) end_weights();
      }
    }
  }

  // Results leave through shared memory, 32 rows at a time, so that a row's 64 (geglu: 32) are stored together.
  __device__ __forceinline__ void store(const WgmmaTile& tile, const float (&s)[N / 2]) {
    const uint32_t thread = threadIdx.x % 128, pieces = job.geglu ? 4 : 8;
    const uint32_t first_column = tile.column + group * pieces * 8;
#pragma unroll
    for (uint32_t pass = 0; pass < N / 32; ++pass) {
      const uint32_t buffer =
          memory.at(WgmmaMemory<Weights>::kStoreAt) + group * kWgmmaStoreBytes + store_buffer * (kWgmmaStoreBytes / 2);
      store_buffer ^= 1;
      if (job.geglu) {
        uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t j = (pass * 4 + i) * 4;
          r[i] = bf16_pair(gelu_by_exponential(s[j]) * s[j + 2], gelu_by_exponential(s[j + 1]) * s[j + 3]);
        }
        const uint32_t row = lane;  // row l % 8 of matrix l / 8
        stmatrix_x4_trans(buffer + row * 128 + (warp ^ (row % 8)) * 16, r);
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t j = (pass * 4 + 2 * i) * 4;
          const uint32_t r[4] = {bf16_pair(s[j], s[j + 1]), bf16_pair(s[j + 2], s[j + 3]),
                                 bf16_pair(s[j + 4], s[j + 5]), bf16_pair(s[j + 6], s[j + 7])};
          const uint32_t row = i * 16 + lane / 16 * 8 + lane % 8;
          stmatrix_x4_trans(buffer + row * 128 + ((warp * 2 + lane / 8 % 2) ^ (row % 8)) * 16, r);
        }
      }
      named_barrier<128>(kStoreBarrier + static_cast<int>(group));
      for (uint32_t i = thread; i < 32 * pieces; i += 128) {
        const uint32_t row = i / pieces, piece = i % pieces, column = first_column + piece * 8;
        const uint32_t to = tile.row + pass * 32 + row;
        if (to >= tile.end || column >= tile.column_end) continue;
        *reinterpret_cast<uint4*>(job.out + static_cast<uint64_t>(to) * job.out_columns + column) =
            load_shared_16(buffer + row * 128 + (piece ^ (row % 8)) * 16);
      }
    }
  }

  // gelu by its sigmoid form, x / (1 + exp(-2 u)): the relative error stays that of the exponential.
  __device__ static float gelu_by_exponential(float x) {
    constexpr float kFactor = -2.0f * 0.7978845608028654f * 1.4426950408889634f;  // -2 sqrt(2 / pi) log2(e)
    return __fdividef(x, 1.0f + exp2_fast(kFactor * x * (1.0f + 0.044715f * x * x)));
  }

  __device__ void run(TileWalk<N> walk) {
    for (WgmmaTile tile; walk.next(tile);) {
      float sums[N / 2] = {};
      multiply(sums);
      store(tile, sums);
    }
  }
};

template <Packing kPacking, int N>
__global__ void __launch_bounds__(kWgmmaThreads, 1) wgmma_gemm_kernel(const __grid_constant__ WgmmaJob job) {
#if defined(CARAT_SM90A)
  using Weights = Fragments<kPacking>;
  using Memory = WgmmaMemory<Weights>;
  extern __shared__ unsigned char raw_memory[];
  const Memory memory{raw_memory + (1024 - shared_address(raw_memory) % 1024) % 1024};
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < kWgmmaActivationSlots; ++s) {
      mbarrier_init(memory.activations_full(s), job.source != nullptr ? kGatherThreads / 32 : 1);
      mbarrier_init(memory.activations_free(s), 8);  // the consumers' warps
    }
    for (uint32_t s = 0; s < Weights::kSlots; ++s) {
      mbarrier_init(memory.weights_full(s), 1);
      mbarrier_init(memory.weights_free(s), 8);
    }
    fence_mbarrier_init();
  }
  wait_for_predecessor();
  release_successor();
  count_tiles<N>(job, memory);  // its barriers also publish the initialised ones
  const TileWalk<N> walk{job, memory.offsets(), memory.starts(), blockIdx.x};
  const uint32_t warp = threadIdx.x / 32;
  if (warp < 4) {
    setmaxnreg_dec<40>();
    if (warp == 0) {
      if (threadIdx.x % 32 == 0) copy_weights<Weights, N>(job, memory, walk);
    } else if (warp == 1) {
      if (threadIdx.x % 32 == 0 && job.source == nullptr) copy_activations<Weights, N>(job, memory, walk);
    } else if (job.source != nullptr) {
      gather_activations<Weights, N>(job, memory, walk);
    }
  } else {
    setmaxnreg_inc<232>();
    Consumer<Weights, N>(job, memory).run(walk);
  }
#else
  __trap();  // the plan chooses this kernel on sm_90 only
#endif
}

template <Packing kPacking, int N>
void launch_wgmma_width(const WgmmaJob& job, uint32_t blocks, const LaunchConfig& launch) {
  constexpr uint32_t kBytes = WgmmaMemory<Fragments<kPacking>>::kBytes;
  allow_shared_memory(wgmma_gemm_kernel<kPacking, N>, kBytes, "wgmma_product");
  launch_kernel("wgmma_product", wgmma_gemm_kernel<kPacking, N>, dim3(blocks), dim3(kWgmmaThreads), kBytes, launch,
                job);
}

template <Packing kPacking>
void launch_wgmma_gemm(const WgmmaJob& job, uint32_t width, uint32_t blocks, const LaunchConfig& launch) {
  switch (width) {
    case 32:
      return launch_wgmma_width<kPacking, 32>(job, blocks, launch);
    case 64:
      return launch_wgmma_width<kPacking, 64>(job, blocks, launch);
    case 96:
      return launch_wgmma_width<kPacking, 96>(job, blocks, launch);
    case 128:
      return launch_wgmma_width<kPacking, 128>(job, blocks, launch);
    case 160:
      return launch_wgmma_width<kPacking, 160>(job, blocks, launch);
    case 192:
      return launch_wgmma_width<kPacking, 192>(job, blocks, launch);
    default:
      return launch_wgmma_width<kPacking, 256>(job, blocks, launch);
  }
}

}  // namespace carat::cuda
