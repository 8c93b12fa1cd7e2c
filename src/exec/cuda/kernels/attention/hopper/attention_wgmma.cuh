#pragma once

// What the kernels of prompt attention by warpgroup products share (device code). Operands lie in shared memory in
// blocks of rows of 64 16-bit values, 128 bytes, whose 16-byte pieces are swizzled as TMA and wgmma have it.
//
// A warpgroup's accumulators: element 4 j + i of a thread is of row g + 8 (i / 2) of its warp's 16 rows and of column
// 8 j + 2 t + i % 2 (g = lane / 4, t = lane % 4).
#include "exec/cuda/kernels/attention/attention_keys.cuh"
#include "exec/cuda/kernels/attention/hopper/attention_wgmma.h"
#include "exec/cuda/kernels/attention/kv_view.cuh"
#include "exec/cuda/kernels/gemm/hopper/ring_position.cuh"
#include "exec/cuda/kernels/ptx/architecture.cuh"
#include "exec/cuda/kernels/ptx/fence_proxy.cuh"
#include "exec/cuda/kernels/ptx/mbarrier.cuh"
#include "exec/cuda/kernels/ptx/mma.cuh"
#include "exec/cuda/kernels/ptx/opaque.cuh"
#include "exec/cuda/kernels/ptx/setmaxnreg.cuh"
#include "exec/cuda/kernels/ptx/tma.cuh"
#include "exec/cuda/kernels/ptx/wgmma.cuh"

namespace carat::cuda {

inline constexpr uint32_t kGroupRows = 64;                        // of a warpgroup
inline constexpr uint32_t kOperandBlockBytes = kGroupRows * 128;  // 64 rows of 64 values
inline constexpr uint32_t kGroupColumns = 256;                    // of a warpgroup's outputs
inline constexpr uint32_t kWgmmaAttentionThreads = 384;           // a warpgroup that copies, two that compute
inline constexpr int kGroupBarrier = 1;                           // named barriers: this and the next, a warpgroup's

// Where the 16-byte piece of a row lies in a block.
__device__ __forceinline__ uint32_t swizzled_piece(uint32_t row, uint32_t piece) {
  return row * 128 + ((piece ^ row % 8) << 4);
}

// Slots that TMA fills and warpgroups read, and two barriers of each: it is full, it is free.
template <uint32_t kSlots, uint32_t kSlotBytes>
struct SlotRing {
  static constexpr uint32_t kBytes = kSlots * kSlotBytes, kBarrierBytes = 2 * kSlots * 8;
  using Position = RingPosition<kSlots>;

  uint32_t slots, barriers;  // addresses

  // Worked out where they are needed: kept ready they would take more registers than there are.
  __device__ __forceinline__ uint32_t slot(uint32_t i) const { return opaque(slots) + i * kSlotBytes; }
  __device__ __forceinline__ uint32_t full(uint32_t i) const { return opaque(barriers) + i * 8; }
  __device__ __forceinline__ uint32_t free(uint32_t i) const { return full(kSlots + i); }

  // One thread, before anybody uses them. readers: warps that give a slot back.
  __device__ __forceinline__ void initialise(uint32_t readers) const {
    for (uint32_t i = 0; i < kSlots; ++i) {
      mbarrier_init(full(i), 1);
      mbarrier_init(free(i), readers);
    }
  }

  // One lane that copies: fills one slot after the other.
  struct Writer {
    SlotRing ring;
    Position next{};

    // copy(slot, full): starts the copies of all its bytes, or those that other blocks do not.
    template <typename Copy>
    __device__ __forceinline__ void fill(const Copy& copy) {
      mbarrier_wait(ring.free(next.slot), next.parity ^ 1);
      mbarrier_arrive_expect_tx(ring.full(next.slot), kSlotBytes);
      copy(ring.slot(next.slot), ring.full(next.slot));
      next.advance();
    }
  };

  // A warp that reads.
  struct Reader {
    SlotRing ring;
    Position reading{}, releasing{};

    // The next slot, once its bytes are there.
    __device__ __forceinline__ uint32_t next() {
      mbarrier_wait(ring.full(reading.slot), reading.parity);
      const uint32_t address = ring.slot(reading.slot);
      reading.advance();
      return address;
    }
    // Gives back the oldest slot that has not been, by arrive(barrier) of one lane: all products that read it have
    // ended.
    template <typename Arrive>
    __device__ __forceinline__ void release(const Arrive& arrive) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(ring.free(releasing.slot));
      releasing.advance();
    }
  };
};

// A tile of query rows of one KV head.
template <uint32_t kHd>
struct QueryTile {
  const PrefillArguments& a;
  Segment segment;
  uint32_t kv_head;

  __device__ __forceinline__ QueryOfRow query(uint32_t row) const { return {a.shape, segment, kv_head, row}; }
  // Rows beyond the segment repeat its last position; nothing is stored for them.
  __device__ __forceinline__ uint32_t position(uint32_t row) const {
    return segment.position + min(query(row).query, segment.count - 1);
  }

  // Copies kRows rows to blocks at `to`, those of the first 64 rows first; by 256 threads.
  template <uint32_t kRows>
  __device__ __forceinline__ void load(uint32_t to, uint32_t thread) const {
    constexpr uint32_t kPieces = kHd / 8;
    const uint32_t piece = thread % kPieces;
#pragma unroll 4
    for (uint32_t row = thread / kPieces; row < kRows; row += 256 / kPieces) {
      const QueryOfRow from = query(row);
      const bool valid = from.query < segment.count;
      const uint32_t block = row / kGroupRows * (kHd / 64) + piece / 8;
      copy_async(to + block * kOperandBlockBytes + swizzled_piece(row % kGroupRows, piece % 8),
                 a.q + (valid ? from.offset + piece * 8 : 0), valid);
    }
    copy_async_commit();
    copy_async_wait<0>();
    fence_proxy_async();
  }

  // A warpgroup's outputs, 64 rows from `first_row` and 256 columns from `first_column`, times `factor`, in bf16. They
  // pass through four blocks at `staging`, to leave as whole 16-byte pieces.
  __device__ __forceinline__ void store(const float (&o)[kGroupColumns / 2], const float (&factor)[2], uint32_t group,
                                        uint32_t first_row, uint32_t first_column, uint32_t staging) const {
    const uint32_t thread = threadIdx.x % 128, lane = thread % 32;
#pragma unroll
    for (uint32_t j = 0; j < kGroupColumns / 8; ++j) {
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t row = thread / 32 * 16 + h * 8 + lane / 4;
        const __nv_bfloat162 pair =
            __floats2bfloat162_rn(o[4 * j + 2 * h] * factor[h], o[4 * j + 2 * h + 1] * factor[h]);
        store_shared(staging + j / 8 * kOperandBlockBytes + swizzled_piece(row, j % 8) + lane % 4 * 4,
                     *reinterpret_cast<const uint32_t*>(&pair));
      }
    }
    named_barrier<128>(kGroupBarrier + static_cast<int>(group));
    constexpr uint32_t kPieces = kGroupColumns / 8;
#pragma unroll 4
    for (uint32_t i = thread; i < kGroupRows * kPieces; i += 128) {
      const uint32_t row = i / kPieces, piece = i % kPieces;
      const QueryOfRow to = query(first_row + row);
      if (to.query >= segment.count) continue;
      *reinterpret_cast<uint4*>(a.out + to.offset + first_column + piece * 8) =
          load_shared_16(staging + piece / 8 * kOperandBlockBytes + swizzled_piece(row, piece % 8));
    }
  }
};

// Scores of a warpgroup's 64 rows and 64 keys, and the softmax of its rows so far.
struct GroupScores {
  // Below any score, and finite: keys of which a row sees none change nothing.
  static constexpr float kLowest = -1e30f;

  float s[32];
  uint32_t position[2];                   // of this thread's rows
  float row_max[2] = {kLowest, kLowest};  // of score * log2(e)
  float row_sum[2] = {0.0f, 0.0f};        // this thread's share
  float factor[2] = {1.0f, 1.0f};         // of what was summed up before the last maximum

  __device__ __forceinline__ GroupScores() {
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] = 0.0f;
  }

  static __device__ __forceinline__ uint32_t lane() { return threadIdx.x % 32; }
  // This thread's rows among the 64.
  static __device__ __forceinline__ uint32_t row(uint32_t half) {
    return threadIdx.x % 128 / 32 * 16 + half * 8 + lane() / 4;
  }

  // Keys from `first` on: those that are not among the row's own position and `span` before it are not seen.
  __device__ __forceinline__ void mask(uint32_t first, uint32_t span) {
    const uint32_t key = first + lane() % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) {
      // Keys after the row's position wrap around to more than any span.
      if (position[i / 2 % 2] - (key + i / 4 * 8 + i % 2) > span) s[i] = -INFINITY;
    }
  }

  // The largest scores of this thread's rows.
  __device__ __forceinline__ void largest(float (&found)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      found[h] = fmaxf(s[2 * h], s[2 * h + 1]);
#pragma unroll
      for (int j = 1; j < 8; ++j) found[h] = fmaxf(found[h], fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
      found[h] = fmaxf(found[h], __shfl_xor_sync(0xffffffffu, found[h], 1));
      found[h] = fmaxf(found[h], __shfl_xor_sync(0xffffffffu, found[h], 2));
    }
  }
  __device__ __forceinline__ void raise(const float (&found)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float new_max = fmaxf(row_max[h], found[h] * kLog2E);
      factor[h] = exp2_fast(row_max[h] - new_max);
      row_sum[h] *= factor[h];
      row_max[h] = new_max;
    }
  }
  // Scores become probabilities, not yet divided by their sum.
  __device__ __forceinline__ void exponentiate() {
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) {
      s[i] = exp2_fast(fmaf(s[i], kLog2E, -row_max[i / 2 % 2]));
      row_sum[i / 2 % 2] += s[i];
    }
  }
  // Probabilities as first operands in registers: those of 16 neighbouring keys are one as they lie.
  using Probabilities = uint32_t[4][4];
  __device__ __forceinline__ void keep(Probabilities& p) const {
#pragma unroll
    for (uint32_t i = 0; i < 16; ++i) p[i / 4][i % 4] = pack_half2(s[2 * i], s[2 * i + 1]);
  }
  // row_sum of the row's four threads.
  __device__ __forceinline__ void total_sums() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      row_sum[h] += __shfl_xor_sync(0xffffffffu, row_sum[h], 1);
      row_sum[h] += __shfl_xor_sync(0xffffffffu, row_sum[h], 2);
    }
  }
  __device__ __forceinline__ void scale(float (&o)[kGroupColumns / 2]) const {
#pragma unroll
    for (uint32_t i = 0; i < kGroupColumns / 2; ++i) o[i] *= factor[i / 2 % 2];
  }
};

// Zeros for the rows of a slot of values that hold keys outside [begin, end): what an unused cell of the cache holds
// may be NaN, and a probability of zero does not silence that. The slot: four blocks of kKeys rows, from `key` on; by a
// warpgroup.
template <uint32_t kKeys>
__device__ __forceinline__ void clear_outside(uint32_t slot, uint32_t key, uint32_t begin, uint32_t end,
                                              uint32_t group) {
  if (key >= begin && key + kKeys <= end) return;
  for (uint32_t piece = threadIdx.x % 128; piece < 4 * kKeys * 8; piece += 128) {
    if (key + piece / 8 % kKeys - begin >= end - begin) store_shared_16(slot + piece * 16, make_uint4(0, 0, 0, 0));
  }
  fence_proxy_async();
  named_barrier<128>(kGroupBarrier + static_cast<int>(group));
}

}  // namespace carat::cuda
