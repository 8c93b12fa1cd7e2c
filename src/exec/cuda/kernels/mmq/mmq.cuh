#pragma once

// Device code: out[r][o] = sum over blocks b of sx[r][b] sw[o][b] * (sum over 32 columns of x[r][c] w[o][c]), the inner
// sum in integers on the tensor cores (mma.m16n8k32, from sm_80 on). Bound by them where an SM does 256 multiply-adds
// a clock and scheduler (sm_86, sm_89, sm_120), by instruction issue where it does more.
//
//   block: 8 warps (2 x 4) compute kTileRows activation rows x 128 weight rows; a warp 16 kRowTiles x 32
//   k:     chunks of 128 columns of both operands pass through a ring in shared memory, filled by cp.async
//   grid:  row tiles first, in bands of 16, so that blocks that run at the same time share weights and rows in L2
//
//   ring slot: rows [high, low][kTileRows][128] | their scales | their sums | weights [128 rows] | their high bits
//   after it:  each warp's own scales of its 32 weight rows, decoded to fp32 once a chunk
//
// An integer c of a product becomes a float without a conversion: the accumulator starts as the bits of 1.5 * 2^23, so
// that its own bits read as 1.5 * 2^23 + c (|c| < 2^22: 32 * 127 * 127 and 32 * 128 * 127 are). One multiply-add
// then takes the constant away again and applies the activations' scale: fma(float(bits), s, -1.5 * 2^23 * s), exact
// up to its one rounding because s has so few bits (MmqRows) that the product with the constant is no rounded one. The
// second multiply-add applies the weights' scale: two instructions a result and block, where conversion, product of the
// scales and sum would be three or four. With 15-bit activations 128 h + l both parts take one such step, the constants
// of both in the first (129 * 3 * s still fits 24 bits), and three instructions serve two mma.
#include <stdexcept>

#include "exec/cuda/kernels/mmq/mmq_launch.h"
#include "exec/cuda/kernels/mmq/mmq_weights.cuh"

namespace carat::cuda {

inline constexpr int kMmqThreads = 256;
// Cards with shared memory for two blocks an SM get kernels that leave registers for two; the others' single block may
// have all of them and reads further ahead.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200))
inline constexpr int kMmqBlocksPerSm = 2;
#else
inline constexpr int kMmqBlocksPerSm = 1;
#endif
inline constexpr uint32_t kMmqBand = 16;  // row tiles

inline constexpr uint32_t kMmqMagicBits = 0x4b400000u;  // of kMmqMagic
inline constexpr float kMmqMagic = 12582912.0f;         // 1.5 * 2^23

// Integer products on top of kMmqMagicBits. 32 columns, or the 16 of one half of a block.
__device__ __forceinline__ void multiply_block(uint32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(kMmqMagicBits));
}
__device__ __forceinline__ void multiply_half(uint32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(kMmqMagicBits));
}

template <Packing packing, MmqActivations activations, int kRowTiles>
class MmqTile {
 public:
  using Weights = MmqWeights<packing>;
  static constexpr int kBytes = static_cast<int>(activations);
  static constexpr int kTileRows = 32 * kRowTiles, kWarpRows = 16 * kRowTiles, kWarpColumns = 32;
  static constexpr bool kSums = mmq_needs_sums(packing), kHalves = packing == Packing::kQ6K;
  static constexpr MmqMemory kMemory = mmq_memory(packing, activations, kTileRows);
  static constexpr uint32_t kSlots = kMemory.slots;
  // Offsets in a slot.
  static constexpr uint32_t kScales = kTileRows * kMmqChunk * kBytes;
  static constexpr uint32_t kRowSums = kScales + kTileRows * 16;
  static constexpr uint32_t kWeights = kRowSums + (kSums ? kTileRows * 16 : 0);
  static constexpr uint32_t kHigh = kWeights + kMmqColumns * Weights::kQuantPieces * 16;
  static_assert(kHigh + kMmqColumns * Weights::kHighBytes == kMemory.slot && kSlots >= 2);
  // Blocks of 32 columns whose loads the compiler may move ahead of one another.
  static constexpr int kBlocksAtOnce = kMmqBlocksPerSm == 1 ? 3 : 1;
  static constexpr uint32_t kOutStride = kWarpColumns * 2 + 16;  // bytes of a result row on its way out
  static_assert(8 * kWarpRows * kOutStride <= kMemory.slot * kSlots);

  __device__ MmqTile(const MmqProduct& job, unsigned char* memory) : job_(job), ring_(shared_address(memory)) {
    const uint32_t band = blockIdx.x / (kMmqBand * job.column_tiles),
                   in_band = blockIdx.x % (kMmqBand * job.column_tiles);
    const uint32_t band_rows = min(kMmqBand, job.row_tiles - band * kMmqBand);
    first_row_ = (band * kMmqBand + in_band % band_rows) * kTileRows;
    const uint32_t tile = in_band / band_rows;
    part_ = 0;
    while (part_ + 1 < job.parts && tile >= job.first_tile[part_ + 1]) ++part_;
    view_ = job.weights[part_];
    first_column_ = (tile - job.first_tile[part_]) * kMmqColumns;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    warp_row_ = warp / 4 * kWarpRows;
    warp_column_ = warp % 4 * kWarpColumns;
    // Rows beyond the matrix repeat its last one; nothing of them is stored.
    scale_row_ = min(first_column_ + warp_column_ + lane, view_.rows - 1);
    row_pieces_ = piece_offset<8>(warp_row_ + lane % 16, lane / 16);
    warp_scales_ = ring_ + kSlots * kMemory.slot + warp * (kMemory.scales / 8);
  }

  __device__ __forceinline__ void run() {
#pragma unroll
    for (uint32_t s = 0; s < kSlots - 1; ++s) {
      if (s < job_.chunks) copy_weights(s, s);
    }
    typename Weights::Raw raw = Weights::load_scales(view_, scale_row_, 0);
    wait_for_predecessor();  // weights never change; activations are its work
    release_successor();
#pragma unroll
    for (uint32_t s = 0; s < kSlots - 1; ++s) {
      if (s < job_.chunks) copy_rows(s, s);
      copy_async_commit();
    }
    uint32_t read_slot = 0, write_slot = kSlots - 1;
    for (uint32_t chunk = 0; chunk < job_.chunks; ++chunk) {
      copy_async_wait<kSlots - 2>();
      __syncthreads();  // this chunk is there, and nobody reads the slot and the scales that are written next
      store_scales(raw, chunk);
      if (chunk + 1 < job_.chunks) raw = Weights::load_scales(view_, scale_row_, chunk + 1);
      __syncwarp();
      const uint32_t slot = ring_ + read_slot * kMemory.slot, ahead = chunk + kSlots - 1;
      multiply(slot, 0);
      if (ahead < job_.chunks) {  // behind the first block, whose reads of shared memory would wait for these copies
        copy_weights(write_slot, ahead);
        copy_rows(write_slot, ahead);
      }
      copy_async_commit();
#pragma unroll kBlocksAtOnce
      for (uint32_t block = 1; block < 4; ++block) multiply(slot, block);
      read_slot = read_slot + 1 == kSlots ? 0 : read_slot + 1;
      write_slot = write_slot + 1 == kSlots ? 0 : write_slot + 1;
    }
    if (job_.out != nullptr) {
      __syncthreads();  // the ring now serves as the results' way out
      store_bf16();
    } else {
      store_float();
    }
  }

 private:
  __device__ __forceinline__ void copy_weights(uint32_t slot, uint32_t chunk) const {
    constexpr uint32_t kPieces = Weights::kQuantPieces, kRowsAtOnce = kMmqThreads / kPieces;
    const uint32_t base = ring_ + slot * kMemory.slot;
    const uint32_t piece = threadIdx.x % kPieces;
#pragma unroll
    for (uint32_t row = threadIdx.x / kPieces, i = 0; i < kMmqColumns / kRowsAtOnce; ++i, row += kRowsAtOnce) {
      copy_async(base + kWeights + piece_offset<kPieces>(row, piece),
                 Weights::quant_source(view_, weight_row(row), chunk, piece), true);
    }
    if constexpr (Weights::kHighBytes > 0) {
      constexpr uint32_t kHighPieces = Weights::kHighBytes / 16;
      if (threadIdx.x < kMmqColumns * kHighPieces) {
        const uint32_t row = threadIdx.x / kHighPieces, high_piece = threadIdx.x % kHighPieces;
        const auto* source = static_cast<const uint4*>(Weights::high_source(view_, weight_row(row), chunk));
        copy_async(base + kHigh + threadIdx.x * 16, source + high_piece, true);
      }
    }
  }
  __device__ __forceinline__ uint32_t weight_row(uint32_t row) const {
    return min(first_column_ + row, view_.rows - 1);
  }

  __device__ __forceinline__ void copy_rows(uint32_t slot, uint32_t chunk) const {
    const uint32_t base = ring_ + slot * kMemory.slot, piece = threadIdx.x % 8;
    constexpr uint32_t kRowsAtOnce = kMmqThreads / 8;
    // For 15-bit activations a row of the slot is one part of a row of activations.
#pragma unroll
    for (uint32_t row = threadIdx.x / 8, i = 0; i < kTileRows * kBytes / kRowsAtOnce; ++i, row += kRowsAtOnce) {
      const uint64_t source = (static_cast<uint64_t>(first_row_ + row % kTileRows) * job_.chunks + chunk) * kBytes;
      copy_async(base + piece_offset<8>(row, piece),
                 job_.x.quants + (source + row / kTileRows) * kMmqChunk + piece * 16, true);
    }
    if (threadIdx.x < kTileRows * (kSums ? 2 : 1)) {
      const uint32_t group = threadIdx.x % kTileRows / 16;  // of 16 rows, whose scales of a chunk are 16 pieces
      const float* source = threadIdx.x < kTileRows ? job_.x.scales : job_.x.sums;
      copy_async(
          base + kScales + threadIdx.x * 16,
          source + (static_cast<uint64_t>(first_row_ / 16 + group) * job_.chunks + chunk) * 64 + threadIdx.x % 16 * 4,
          true);
    }
  }

  // Each lane decodes the scales of one of the warp's weight rows: [scale, second][block][row], the eight rows that
  // thread t of a quad multiplies (8 j + 2 t and the next one) side by side.
  __device__ __forceinline__ void store_scales(const typename Weights::Raw& raw, uint32_t chunk) const {
    const uint32_t lane = threadIdx.x % 32, place = lane / 2 % 4 * 8 + lane / 8 * 2 + lane % 2;
    float first[4], second[4];
    Weights::decode(raw, chunk, first, second);
#pragma unroll
    for (uint32_t block = 0; block < 4; ++block) {
      const uint32_t at = warp_scales_ + (block * kWarpColumns + place) * 4;
      store_shared(at, first[block]);
      if constexpr (kSums || kHalves) store_shared(at + kSecond, second[block]);
    }
  }
  static constexpr uint32_t kSecond = 4 * kWarpColumns * 4;

  static __device__ __forceinline__ void load_scales(float2 (&scales)[4], uint32_t at) {
#pragma unroll
    for (uint32_t pair = 0; pair < 2; ++pair) {
      const uint4 v = load_shared_16(at + pair * 16);
      scales[2 * pair] = make_float2(__uint_as_float(v.x), __uint_as_float(v.y));
      scales[2 * pair + 1] = make_float2(__uint_as_float(v.z), __uint_as_float(v.w));
    }
  }

  __device__ __forceinline__ void multiply(uint32_t slot, uint32_t block) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    MmqColumns columns;
    Weights::load_columns(columns, slot + kWeights, slot + kHigh, warp_column_, block);
    float2 first[4], second[4];  // of this lane's two columns of each tile
    load_scales(first, warp_scales_ + block * (kWarpColumns * 4) + t * 32);
    if constexpr (kSums || kHalves) load_scales(second, warp_scales_ + kSecond + block * (kWarpColumns * 4) + t * 32);
#pragma unroll
    for (uint32_t i = 0; i < kRowTiles; ++i) {
      uint32_t a[kBytes][4];
#pragma unroll
      for (uint32_t part = 0; part < kBytes; ++part) {
        // Two pieces a block: the swizzle turns the step to the next one into an exclusive or.
        load_matrices(a[part], ((slot + row_pieces_) ^ (block * 32)) + (part * kTileRows + i * 16) * 128);
      }
      const uint32_t scales = slot + kScales + (warp_row_ / 16 + i) * 256 + block * 64 + g * 8;
      const Promotion rows(load_shared_2_floats(scales));
      float2 sum{};
      if constexpr (kSums) sum = load_shared_2_floats(scales + (kRowSums - kScales));
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        float(&acc)[4] = acc_[i][j];
        if constexpr (kHalves) {
#pragma unroll
          for (uint32_t half = 0; half < 2; ++half) {
            uint32_t c[kBytes][4];
#pragma unroll
            for (uint32_t part = 0; part < kBytes; ++part) {
              multiply_half(c[part], a[part][2 * half], a[part][2 * half + 1], columns.b[j][half]);
            }
            rows.add(acc, c, half == 0 ? first[j] : second[j]);
          }
        } else {
          uint32_t c[kBytes][4];
#pragma unroll
          for (uint32_t part = 0; part < kBytes; ++part) multiply_block(c[part], a[part], columns.b[j]);
          rows.add(acc, c, first[j]);
        }
        if constexpr (kSums) {
          acc[0] -= second[j].x * sum.x, acc[1] -= second[j].y * sum.x;
          acc[2] -= second[j].x * sum.y, acc[3] -= second[j].y * sum.y;
        }
      }
    }
  }

  // Integers to floats for the lane's two rows, g and g + 8 of a tile.
  struct Promotion {
    float scale[2], high_scale[2], constant[2];
    explicit __device__ Promotion(const float2& scales) : scale{scales.x, scales.y} {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        high_scale[r] = 128.0f * scale[r];
        constant[r] = (kBytes == 2 ? -129.0f * kMmqMagic : -kMmqMagic) * scale[r];
      }
    }
    __device__ __forceinline__ void add(float (&acc)[4], const uint32_t (&c)[kBytes][4], const float2& weights) const {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float value;
        if constexpr (kBytes == 1) {
          value = fmaf(__uint_as_float(c[0][e]), scale[e / 2], constant[e / 2]);
        } else {
          value = fmaf(__uint_as_float(c[0][e]), high_scale[e / 2], constant[e / 2]);
          value = fmaf(__uint_as_float(c[1][e]), scale[e / 2], value);
        }
        acc[e] = fmaf(e % 2 == 0 ? weights.x : weights.y, value, acc[e]);
      }
    }
  };

  // Results of a warp through its part of shared memory, so that they leave as 16 bytes a lane, 64 bytes a row.
  __device__ void store_bf16() const {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t shared = ring_ + threadIdx.x / 32 * (kWarpRows * kOutStride);
#pragma unroll
    for (uint32_t i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
          const __nv_bfloat162 pair = __floats2bfloat162_rn(acc_[i][j][2 * half], acc_[i][j][2 * half + 1]);
          store_shared(shared + (i * 16 + half * 8 + g) * kOutStride + j * 16 + t * 4,
                       *reinterpret_cast<const uint32_t*>(&pair));
        }
      }
    }
    __syncwarp();
    const uint32_t in_part = first_column_ + warp_column_ + t * 8;
    if (in_part >= view_.rows) return;
    const uint32_t column = job_.column[part_] + in_part;
    const bool whole = in_part + 8 <= view_.rows && job_.leading % 8 == 0 && column % 8 == 0;
    for (uint32_t r = g; r < kWarpRows && first_row_ + warp_row_ + r < job_.rows; r += 8) {
      const uint4 values = load_shared_16(shared + r * kOutStride + t * 16);
      __nv_bfloat16* to = job_.out + static_cast<uint64_t>(first_row_ + warp_row_ + r) * job_.leading + column;
      if (whole) {
        *reinterpret_cast<uint4*>(to) = values;
        continue;
      }
      const uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) {
        if (in_part + e < view_.rows) {
          to[e] = __ushort_as_bfloat16(static_cast<unsigned short>(words[e / 2] >> (e % 2 * 16)));
        }
      }
    }
  }

  __device__ void store_float() const {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
#pragma unroll
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t row = first_row_ + warp_row_ + i * 16 + e / 2 * 8 + g;
          const uint32_t in_part = first_column_ + warp_column_ + j * 8 + 2 * t + e % 2;
          if (row < job_.rows && in_part < view_.rows) {
            job_.out_float[static_cast<uint64_t>(row) * job_.leading + job_.column[part_] + in_part] = acc_[i][j][e];
          }
        }
      }
    }
  }

  const MmqProduct& job_;
  PackedView view_;
  uint32_t ring_, warp_scales_, row_pieces_;
  uint32_t first_row_, first_column_, part_, warp_row_, warp_column_, scale_row_;
  float acc_[kRowTiles][4][4] = {};
};

template <Packing packing, MmqActivations activations, int kRowTiles>
__global__ void __launch_bounds__(kMmqThreads, kMmqBlocksPerSm) mmq_kernel(const __grid_constant__ MmqProduct job) {
  extern __shared__ __align__(128) unsigned char memory[];
  MmqTile<packing, activations, kRowTiles>(job, memory).run();
}

template <Packing packing, MmqActivations activations, int kRowTiles>
void launch_mmq(const MmqProduct& job, const LaunchConfig& launch) {
  constexpr uint32_t kShared = MmqTile<packing, activations, kRowTiles>::kMemory.total();
  const auto kernel = mmq_kernel<packing, activations, kRowTiles>;
  allow_shared_memory(kernel, kShared, "mmq");
  launch_kernel("mmq", kernel, dim3(job.row_tiles * job.column_tiles), dim3(kMmqThreads), kShared, launch, job);
}

// The kernel of a tile height; each packing is a file of its own that instantiates this.
template <Packing packing, MmqActivations activations>
void launch_mmq_rows(const MmqProduct& job, uint32_t tile_rows, const LaunchConfig& launch) {
  if (tile_rows == 32) return launch_mmq<packing, activations, 1>(job, launch);
  if (tile_rows == 64) return launch_mmq<packing, activations, 2>(job, launch);
  if constexpr (mmq_memory(packing, activations, 128).slots > 0) {
    if (tile_rows == 128) return launch_mmq<packing, activations, 4>(job, launch);
  }
  throw std::logic_error("internal check failed: mmq has no such tile");
}

template <Packing packing>
void launch_mmq_packing(const MmqProduct& job, uint32_t tile_rows, const LaunchConfig& launch) {
  if (job.x.activations == MmqActivations::kInt8) {
    return launch_mmq_rows<packing, MmqActivations::kInt8>(job, tile_rows, launch);
  }
  launch_mmq_rows<packing, MmqActivations::kInt16>(job, tile_rows, launch);
}

}  // namespace carat::cuda
