#pragma once

// Prompt attention by warpgroup products (device code). Two blocks, a cluster, take two neighbouring tiles of 64 rows
// (queries times the query heads of a KV head) of one KV head; where they belong to one prompt they see the same keys,
// and each block copies half of them, to both.
//
//   block   warps 0, 1: copy the keys and values of a warpgroup (TMA)
//           warpgroups 1, 2: scores of 64 rows x 64 keys each; then 256 of the 512 output columns of all 64 rows
//   step    128 keys, from the last to the first: only the first steps have keys that a row does not see
//
//              keys 0-63    64-127                   columns 0-255   256-511
//            +-----------+-----------+              +-------------+-----------+
//    64 rows | group 1   | group 2   |  -- P, fp16, | group 1     | group 2   |
//            +-----------+-----------+  shared  --> +-------------+-----------+
//
//   memory  queries 64 KB | P 2 x 16 KB | two rings of 4 slots of 16 KB: 64 keys x 128 columns of K, or 32 x 256 of V
//   order   of a warpgroup: scores of step i, P V of step i - 1, and while that runs, the softmax of step i
//
// Bound by shared memory: a step writes 256 KB to it and reads 416 KB, which takes 5,400 cycles where the tensor cores
// need 4,096. From L2 come 128 KB a step and block; one tile alone would need 256, more than L2 gives in that time.
#include "exec/cuda/kernels/attention_mma.cuh"
#include "exec/cuda/kernels/attention_wgmma.h"
#include "exec/cuda/kernels/cluster.cuh"
#include "exec/cuda/kernels/hopper.cuh"

namespace carat::cuda {

inline constexpr uint32_t kAttentionStepKeys = 128, kAttentionGroupKeys = 64, kAttentionValueKeys = 32;
inline constexpr uint32_t kAttentionSlots = 4, kAttentionSlotBytes = 16 * 1024;
inline constexpr uint32_t kOperandBlockBytes = 64 * 128;                 // 64 rows of 64 values
inline constexpr uint32_t kValueBlockBytes = kAttentionValueKeys * 128;  // 32 keys of 64 columns
inline constexpr uint32_t kProbabilityBytes = 2 * kOperandBlockBytes;    // of a step
inline constexpr uint32_t kWgmmaAttentionThreads = 384;
inline constexpr int kMaximaBarrier = 1, kProbabilityBarrier = 2, kGroupBarrier = 3;  // the last and the next one

// Shared memory, from an address that is a multiple of 1024.
struct WgmmaAttentionMemory {
  static constexpr uint32_t kProbabilitiesAt = kWgmmaAttentionHd / 64 * kOperandBlockBytes;
  static constexpr uint32_t kRingsAt = kProbabilitiesAt + 2 * kProbabilityBytes;
  static constexpr uint32_t kMaximaAt = kRingsAt + 2 * kAttentionSlots * kAttentionSlotBytes;
  static constexpr uint32_t kBarriersAt = kMaximaAt + 2 * kWgmmaAttentionRows * 4;
  static constexpr uint32_t kBytes = kBarriersAt + 2 * 2 * kAttentionSlots * 8;
  static_assert(kBytes + 1024 <= 227 * 1024);

  uint32_t base;

  __device__ __forceinline__ uint32_t queries(uint32_t block) const { return base + block * kOperandBlockBytes; }
  __device__ __forceinline__ uint32_t probabilities(uint32_t step) const {
    return base + kProbabilitiesAt + step % 2 * kProbabilityBytes;
  }
  __device__ __forceinline__ uint32_t slot(uint32_t group, uint32_t slot) const {
    return base + kRingsAt + (group * kAttentionSlots + slot) * kAttentionSlotBytes;
  }
  // Largest scores of a step, later sums, of the row by a warpgroup.
  __device__ __forceinline__ uint32_t row(uint32_t group, uint32_t row) const {
    return base + kMaximaAt + (group * kWgmmaAttentionRows + row) * 4;
  }
  __device__ __forceinline__ uint32_t full(uint32_t group, uint32_t slot) const {
    return base + kBarriersAt + (group * kAttentionSlots + slot) * 8;
  }
  __device__ __forceinline__ uint32_t free(uint32_t group, uint32_t slot) const { return full(2 + group, slot); }
};

// Where in a row of 64 16-bit values, 128 bytes, the 16-byte piece lies.
__device__ __forceinline__ uint32_t swizzled_piece(uint32_t row, uint32_t piece) {
  return row * 128 + ((piece ^ row % 8) << 4);
}

// What a block works on.
struct AttentionShare {
  Segment segment;
  uint32_t kv_head;
  uint32_t rank;  // in the cluster
  bool together;  // with the other block: the same keys
  uint32_t end;   // keys [0, end) are read
  uint32_t steps;

  // Later tiles of a prompt see more keys: they go first, so that the last blocks to run are short.
  __device__ __forceinline__ explicit AttentionShare(const PrefillArguments& a) {
    const uint32_t cluster = blockIdx.x / 2, pair = (a.tile_count + 1) / 2 - 1 - cluster / a.shape.Hkv;
    kv_head = cluster % a.shape.Hkv;
    rank = blockIdx.x % 2;
    const Segment first = tile(a, 2 * pair), second = tile(a, 2 * pair + 1);
    together = first.count > 0 && second.count > 0 && first.sequence == second.sequence &&
               first.position + first.count == second.position;
    segment.row = rank == 0 ? first.row : second.row;
    segment.count = rank == 0 ? first.count : second.count;
    segment.position = rank == 0 ? first.position : second.position;
    segment.sequence = rank == 0 ? first.sequence : second.sequence;
    end = together ? second.position + second.count : segment.position + segment.count;
    steps = (end + kAttentionStepKeys - 1) / kAttentionStepKeys;
  }

  // First key of a step: they are taken from the last to the first.
  __device__ __forceinline__ uint32_t key(uint32_t step) const { return (steps - 1 - step) * kAttentionStepKeys; }

 private:
  static __device__ __forceinline__ Segment tile(const PrefillArguments& a, uint32_t index) {
    return index < a.tile_count ? a.tiles[index] : Segment{};
  }
};

// A place in a ring: which slot is next, and the parity of its current round.
struct AttentionRing {
  uint32_t slot = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kAttentionSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// One lane copies what warpgroup `group` reads: its 64 keys of a step, then its 256 columns of the values of the step
// before.
class AttentionCopies {
 public:
  __device__ __forceinline__ AttentionCopies(const WgmmaAttentionJob& job, const WgmmaAttentionMemory& memory,
                                             const AttentionShare& share, uint32_t group)
      : job_(job), memory_(memory), share_(share), group_(group) {
    plane_ = (share.segment.sequence * job.a.shape.Hkv + share.kv_head) * job.a.kv.slots;
  }

  __device__ __forceinline__ void run() {
    for (uint32_t step = 0; step < share_.steps; ++step) {
      keys(share_.key(step) + group_ * kAttentionGroupKeys);
      if (step > 0) values(share_.key(step - 1));
    }
    values(share_.key(share_.steps - 1));
  }

 private:
  __device__ __forceinline__ void keys(uint32_t key) {
    for (uint32_t part = 0; part < kWgmmaAttentionHd / 128; ++part) {
      begin_slot();
      for (uint32_t block = 0; block < 2; ++block) {
        if (share_.together && block != share_.rank) continue;
        box(job_.keys, block * kOperandBlockBytes, part * 128 + block * 64, key);
      }
      ring_.advance();
    }
  }
  __device__ __forceinline__ void values(uint32_t key) {
    for (uint32_t part = 0; part < kAttentionStepKeys / kAttentionValueKeys; ++part) {
      begin_slot();
      for (uint32_t block = 0; block < 4; ++block) {
        if (share_.together && block / 2 != share_.rank) continue;
        box(job_.values, block * kValueBlockBytes, group_ * 256 + block * 64, key + part * kAttentionValueKeys);
      }
      ring_.advance();
    }
  }

  __device__ __forceinline__ void begin_slot() {
    barrier_wait(memory_.free(group_, ring_.slot), ring_.parity ^ 1);
    barrier_expect(memory_.full(group_, ring_.slot), kAttentionSlotBytes);
  }
  // A step may reach beyond the cache: what is copied then is not seen.
  __device__ __forceinline__ void box(const CUtensorMap& map, uint32_t offset, uint32_t column, uint32_t key) {
    const uint32_t to = memory_.slot(group_, ring_.slot) + offset, full = memory_.full(group_, ring_.slot),
                   row = plane_ + key % job_.a.kv.slots;
    if (share_.together) {
      copy_box_to_blocks(to, &map, full, column, row, 3);
    } else {
      copy_box(to, &map, full, column, row);
    }
  }

  const WgmmaAttentionJob& job_;
  const WgmmaAttentionMemory& memory_;
  const AttentionShare& share_;
  uint32_t group_, plane_;
  AttentionRing ring_;
};

// One of the two warpgroups that compute. Element 4 j + i of `s` and `o` is of row g + 8 (i / 2) of the warp's 16 and
// column 8 j + 2 t + i % 2 (g = lane / 4, t = lane % 4) of the group's 64 keys or 256 columns.
class AttentionGroup {
 public:
  __device__ __forceinline__ AttentionGroup(const PrefillArguments& a, const WgmmaAttentionMemory& memory,
                                            const AttentionShare& share, uint32_t group)
      : a_(a), memory_(memory), share_(share), group_(group), thread_(threadIdx.x % 128), lane_(threadIdx.x % 32) {
    const uint32_t heads = a.shape.H / a.shape.Hkv, highest = share.segment.position + share.segment.count - 1;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Rows beyond the segment repeat its last position; nothing is stored for them.
      position_[h] = min(share.segment.position + row(h) / heads, highest);
      row_max_[h] = kLowest;
      row_sum_[h] = 0.0f;
      factor_[h] = 1.0f;
    }
#pragma unroll
    for (int i = 0; i < 128; ++i) o_[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; ++i) s_[i] = 0.0f;
  }

  __device__ __forceinline__ void run() {
    load_queries();
    scores();
    wgmma_wait<0>();
    release();
    mask(0);
    publish_maxima();
    exchange_maxima();
    probabilities(0);
    for (uint32_t step = 1; step < share_.steps; ++step) {
      scores();
      named_barrier<256>(kProbabilityBarrier);
      values(step - 1, 0);
      wgmma_wait<1>();  // the scores are there
      release();
      values(step - 1, 1);
      mask(step);
      publish_maxima();
      wgmma_wait<1>();
      release();
      values(step - 1, 2);
      exchange_maxima();
      wgmma_wait<1>();
      release();
      values(step - 1, 3);
      probabilities(step);
      // The compiler would not let them go on around the loop.
      wgmma_wait<0>();
      release();
      release();
    }
    scale_outputs();
    named_barrier<256>(kProbabilityBarrier);
#pragma unroll
    for (uint32_t part = 0; part < 4; ++part) values(share_.steps - 1, part);
    wgmma_wait<0>();
    store();
  }

 private:
  // Below any score, and finite: a step of which a row sees nothing changes nothing.
  static constexpr float kLowest = -1e30f;
  static constexpr float kLog2E = 1.4426950408889634f;

  __device__ __forceinline__ uint32_t row(int half) const { return thread_ / 32 * 16 + half * 8 + lane_ / 4; }

  // The query row and head of a tile's row.
  struct Query {
    bool exists;
    uint64_t offset;
  };
  __device__ __forceinline__ Query query(uint32_t row) const {
    const uint32_t heads = a_.shape.H / a_.shape.Hkv, index = row / heads, head = share_.kv_head * heads + row % heads;
    return {index < share_.segment.count,
            (static_cast<uint64_t>(share_.segment.row + index) * a_.shape.H + head) * kWgmmaAttentionHd};
  }

  // By both warpgroups.
  __device__ __forceinline__ void load_queries() const {
    const uint32_t thread = group_ * 128 + thread_, piece = thread % 64;
#pragma unroll 4
    for (uint32_t row = thread / 64; row < kWgmmaAttentionRows; row += 4) {
      const Query from = query(row);
      copy_async(memory_.queries(piece / 8) + swizzled_piece(row, piece % 8),
                 a_.q + (from.exists ? from.offset + piece * 8 : 0), from.exists);
    }
    copy_async_commit();
    copy_async_wait<0>();
    async_proxy_fence();
    named_barrier<256>(kProbabilityBarrier);
  }

  // The next slot of the ring, once its bytes are there.
  __device__ __forceinline__ uint32_t next_slot() {
    barrier_wait(memory_.full(group_, reading_.slot), reading_.parity);
    const uint32_t address = memory_.slot(group_, reading_.slot);
    reading_.advance();
    return address;
  }
  // Gives back the oldest slot that has not been: all products that read it have ended.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (lane_ == 0) {
      const uint32_t barrier = memory_.free(group_, released_.slot);
      barrier_arrive(barrier);
      if (share_.together) barrier_arrive_in_block(in_block(barrier, share_.rank ^ 1));
    }
    released_.advance();
  }

  // Starts s = Q K^T of a step; the last of its four groups is still under way at the end.
  __device__ __forceinline__ void scores() {
    const uint64_t queries = wgmma_operand(opaque(memory_.queries(0)));
#pragma unroll
    for (uint32_t part = 0; part < 4; ++part) {
      const uint64_t keys = wgmma_operand(next_slot());
      wgmma_fence();
#pragma unroll
      for (uint32_t k = 0; k < 8; ++k) {
        const uint32_t in_part = k / 4 * kOperandBlockBytes + k % 4 * 32;
        const uint64_t a = further(queries, part * 2 * kOperandBlockBytes + in_part), b = further(keys, in_part);
        if (part == 0 && k == 0) {
          wgmma_64_halves<false>(s_, a, b);
        } else {
          wgmma_64_halves<true>(s_, a, b);
        }
      }
      wgmma_commit();
      if (part == 0) {
        scale_outputs();
      } else {
        wgmma_wait<1>();
        release();
      }
    }
  }

  // Starts o += P V of a quarter of a step's keys.
  __device__ __forceinline__ void values(uint32_t step, uint32_t part) {
    const uint32_t slot = next_slot();
    if (step == 0) clear_beyond(slot, share_.key(0) + part * kAttentionValueKeys);
    const uint64_t p = wgmma_operand(memory_.probabilities(step) + part / 2 * kOperandBlockBytes + part % 2 * 64),
                   v = wgmma_operand_rows(slot, kValueBlockBytes);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < 2; ++k) {
      wgmma_256_halves_by_rows(o_, further(p, k * 32), further(v, k * 2048));
    }
    wgmma_commit();
  }

  // Zeros for values from the end on: what an unused slot of the cache holds may be NaN, and a probability of zero does
  // not silence that.
  __device__ __forceinline__ void clear_beyond(uint32_t slot, uint32_t key) const {
    if (key + kAttentionValueKeys <= share_.end) return;
    for (uint32_t piece = thread_; piece < kAttentionSlotBytes / 16; piece += 128) {
      if (key + piece / 8 % kAttentionValueKeys >= share_.end)
        store_shared_16(slot + piece * 16, make_uint4(0, 0, 0, 0));
    }
    async_proxy_fence();
    named_barrier<128>(kGroupBarrier + static_cast<int>(group_));
  }

  __device__ __forceinline__ void mask(uint32_t step) {
    const uint32_t first = share_.key(step) + group_ * kAttentionGroupKeys;
    if (first + kAttentionGroupKeys - 1 <= share_.segment.position) return;
    const uint32_t key = first + lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      if (key + i / 4 * 8 + i % 2 > position_[i / 2 % 2]) s_[i] = -INFINITY;
    }
  }

  __device__ __forceinline__ void publish_maxima() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = fmaxf(s_[2 * h], s_[2 * h + 1]);
#pragma unroll
      for (int j = 1; j < 8; ++j) largest = fmaxf(largest, fmaxf(s_[4 * j + 2 * h], s_[4 * j + 2 * h + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      step_max_[h] = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      if (lane_ % 4 == 0) store_shared(memory_.row(group_, row(h)), __float_as_uint(step_max_[h]));
    }
  }
  __device__ __forceinline__ void exchange_maxima() {
    named_barrier<256>(kMaximaBarrier);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float other = __uint_as_float(load_shared_4(memory_.row(group_ ^ 1, row(h))));
      const float new_max = fmaxf(row_max_[h], fmaxf(step_max_[h], other) * kLog2E);
      factor_[h] = exp2_fast(row_max_[h] - new_max);
      row_sum_[h] *= factor_[h];
      row_max_[h] = new_max;
    }
  }

  // P of a step, this group's keys, to shared memory; of s nothing is left.
  __device__ __forceinline__ void probabilities(uint32_t step) {
    const uint32_t to = memory_.probabilities(step) + group_ * kOperandBlockBytes + lane_ % 4 * 4;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float low = exp2_fast(fmaf(s_[4 * j + 2 * h], kLog2E, -row_max_[h]));
        const float high = exp2_fast(fmaf(s_[4 * j + 2 * h + 1], kLog2E, -row_max_[h]));
        row_sum_[h] += low + high;
        store_shared(to + swizzled_piece(row(h), j), pack_half2(low, high));
      }
    }
    async_proxy_fence();
  }

  __device__ __forceinline__ void scale_outputs() {
#pragma unroll
    for (int i = 0; i < 128; ++i) o_[i] *= factor_[i / 2 % 2];
  }

  // Divides by the row sums and writes bf16. The rows pass through the place of the queries, which nobody reads any
  // more, to leave as whole 16-byte pieces.
  __device__ __forceinline__ void store() {
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      row_sum_[h] += __shfl_xor_sync(0xffffffffu, row_sum_[h], 1);
      row_sum_[h] += __shfl_xor_sync(0xffffffffu, row_sum_[h], 2);
      if (lane_ % 4 == 0) store_shared(memory_.row(group_, row(h)), __float_as_uint(row_sum_[h]));
    }
    named_barrier<256>(kMaximaBarrier);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // In one order for both groups: a row's columns are divided by the same number.
      const float sum = __uint_as_float(load_shared_4(memory_.row(0, row(h)))) +
                        __uint_as_float(load_shared_4(memory_.row(1, row(h))));
      factor[h] = 1.0f / sum;
    }
#pragma unroll
    for (uint32_t j = 0; j < 32; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const __nv_bfloat162 pair =
            __floats2bfloat162_rn(o_[4 * j + 2 * h] * factor[h], o_[4 * j + 2 * h + 1] * factor[h]);
        store_shared(memory_.queries(group_ * 4 + j / 8) + swizzled_piece(row(h), j % 8) + lane_ % 4 * 4,
                     *reinterpret_cast<const uint32_t*>(&pair));
      }
    }
    named_barrier<128>(kGroupBarrier + static_cast<int>(group_));
#pragma unroll 4
    for (uint32_t i = thread_; i < kWgmmaAttentionRows * 32; i += 128) {
      const uint32_t row = i / 32, piece = i % 32;
      const Query to = query(row);
      if (!to.exists) continue;
      *reinterpret_cast<uint4*>(a_.out + to.offset + group_ * 256 + piece * 8) =
          load_shared_16(memory_.queries(group_ * 4 + piece / 8) + swizzled_piece(row, piece % 8));
    }
  }

  const PrefillArguments& a_;
  const WgmmaAttentionMemory& memory_;
  const AttentionShare& share_;
  uint32_t group_, thread_, lane_;
  AttentionRing reading_, released_;
  uint32_t position_[2];
  float row_max_[2];  // of score * log2(e)
  float row_sum_[2];  // this thread's share
  float step_max_[2], factor_[2];
  float s_[32], o_[128];
};

// What one block does; `memory`: a shared address that is a multiple of 1024.
__device__ __forceinline__ void attend_by_warpgroups(const WgmmaAttentionJob& job, const WgmmaAttentionMemory& memory) {
  const AttentionShare share(job.a);
  if (share.segment.count == 0) return;  // the other block is not together with it
  if (threadIdx.x == 0) {
    for (uint32_t group = 0; group < 2; ++group) {
      for (uint32_t slot = 0; slot < kAttentionSlots; ++slot) {
        barrier_init(memory.full(group, slot), 1);
        barrier_init(memory.free(group, slot), share.together ? 8 : 4);  // the warps that read it
      }
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (share.together) {
    cluster_arrive();
    cluster_wait();
  }
  const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // the compiler sees that lanes agree
  if (warp < 4) {
    give_registers<40>();
    if (warp < 2 && threadIdx.x % 32 == 0) AttentionCopies(job, memory, share, warp).run();
    __syncwarp();
  } else {
    take_registers<232>();
    AttentionGroup(job.a, memory, share, warp / 4 - 1).run();
  }
  // Blocks that are together may end one before the other: the last values come only once the other block has given
  // back all slots before them, and then it neither copies nor arrives here any more.
}

}  // namespace carat::cuda
