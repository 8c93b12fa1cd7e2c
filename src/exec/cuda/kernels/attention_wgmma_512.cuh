#pragma once

// Prompt attention by warpgroup products, heads of 512 (device code). Two blocks, a cluster, take two neighbouring
// tiles of 64 rows of one KV head; where they belong to one prompt they see the same keys, and each block copies half
// of them, to both.
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
//   memory  queries 64 KB | P 2 x 16 KB | two rings of 8 slots of 8 KB: 64 keys x 64 columns of K, or 16 x 256 of V
//   order   of a warpgroup: scores of step i, P V of step i - 1, and while that runs, the softmax of step i
//
// Bound by shared memory: a step writes 256 KB to it and reads 416 KB, which takes 5,400 cycles where the tensor cores
// need 4,096. From L2 come 128 KB a step and block; one tile alone would need 256, more than L2 gives in that time.
// Small slots are given back soon: the ring holds half of what a step reads, and has to hide how long copies take.
#include "exec/cuda/kernels/attention_wgmma.cuh"
#include "exec/cuda/kernels/cluster.cuh"

namespace carat::cuda {

struct Wgmma512 {
  static constexpr uint32_t kHd = 512;
  static constexpr uint32_t kStepKeys = 128, kGroupKeys = 64;
  static constexpr uint32_t kParts = 8;  // slots that hold a warpgroup's keys of a step, and those for its values
  static constexpr uint32_t kKeyBlocks = kHd / 64 / kParts, kValueKeys = kStepKeys / kParts;  // of a slot
  static constexpr uint32_t kSlotBytes = kKeyBlocks * kOperandBlockBytes;
  static constexpr uint32_t kKeyBoxRows = kGroupKeys / 2;         // what one of two blocks copies
  static constexpr uint32_t kValueBlockBytes = kValueKeys * 128;  // of 64 columns
  static_assert(kSlotBytes == 4 * kValueBlockBytes && kParts >= 4);
  static constexpr uint32_t kProbabilityBytes = 2 * kOperandBlockBytes;  // of a step
  static constexpr int kMaximaBarrier = 3, kProbabilityBarrier = 4;
  using Ring = SlotRing<kParts, kSlotBytes>;  // of a warpgroup

  // Shared memory, from an address that is a multiple of 1024.
  struct Memory {
    static constexpr uint32_t kProbabilitiesAt = kHd / 64 * kOperandBlockBytes;
    static constexpr uint32_t kRingsAt = kProbabilitiesAt + 2 * kProbabilityBytes;
    static constexpr uint32_t kMaximaAt = kRingsAt + 2 * Ring::kBytes;
    static constexpr uint32_t kBarriersAt = kMaximaAt + 2 * kGroupRows * 4;
    static constexpr uint32_t kBytes = kBarriersAt + 2 * Ring::kBarrierBytes;
    static_assert(kBytes + 1024 <= 227 * 1024);

    uint32_t base;

    __device__ __forceinline__ uint32_t probabilities(uint32_t step) const {
      return base + kProbabilitiesAt + step % 2 * kProbabilityBytes;
    }
    __device__ __forceinline__ Ring ring(uint32_t group) const {
      return {base + kRingsAt + group * Ring::kBytes, base + kBarriersAt + group * Ring::kBarrierBytes};
    }
    // Largest scores of a step, later sums, of the row by a warpgroup.
    __device__ __forceinline__ uint32_t row(uint32_t group, uint32_t row) const {
      return base + kMaximaAt + (group * kGroupRows + row) * 4;
    }
  };

  // What a block works on.
  struct Share {
    Segment segment;
    uint32_t kv_head;
    uint32_t rank;  // in the cluster
    bool together;  // with the other block: the same keys
    uint32_t end;   // keys [0, end) are read
    uint32_t steps;

    // Later tiles of a prompt see more keys: they go first, so that the last blocks to run are short.
    __device__ __forceinline__ explicit Share(const PrefillArguments& a) {
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
      steps = (end + kStepKeys - 1) / kStepKeys;
    }

    // First key of a step: they are taken from the last to the first.
    __device__ __forceinline__ uint32_t key(uint32_t step) const { return (steps - 1 - step) * kStepKeys; }

   private:
    static __device__ __forceinline__ Segment tile(const PrefillArguments& a, uint32_t index) {
      return index < a.tile_count ? a.tiles[index] : Segment{};
    }
  };

  class Copies;
  class Group;

  // What one block does.
  static __device__ __forceinline__ void attend(const WgmmaAttentionJob& job, const Memory& memory);
};

// One lane copies what warpgroup `group` reads: its 64 keys of a step, then its 256 columns of the values of the step
// before.
class Wgmma512::Copies {
 public:
  __device__ __forceinline__ Copies(const WgmmaAttentionJob& job, const Memory& memory, const Share& share,
                                    uint32_t group)
      : job_(job), share_(share), group_(group), writer_{memory.ring(group)} {
    plane_ = (share.segment.sequence * job.a.shape.Hkv + share.kv_head) * job.a.kv.slots;
  }

  __device__ __forceinline__ void run() {
    for (uint32_t step = 0; step < share_.steps; ++step) {
      keys(share_.key(step) + group_ * kGroupKeys);
      if (step > 0) values(share_.key(step - 1));
    }
    values(share_.key(share_.steps - 1));
  }

 private:
  __device__ __forceinline__ void keys(uint32_t key) {
    for (uint32_t part = 0; part < kParts; ++part) {
      writer_.fill([&](uint32_t slot, uint32_t full) {
        for (uint32_t half = 0; half < 2; ++half) {
          if (share_.together && half != share_.rank) continue;
          for (uint32_t block = 0; block < kKeyBlocks; ++block) {
            box(slot + block * kOperandBlockBytes + half * (kOperandBlockBytes / 2), job_.keys, full,
                (part * kKeyBlocks + block) * 64, key + half * kKeyBoxRows);
          }
        }
      });
    }
  }
  __device__ __forceinline__ void values(uint32_t key) {
    for (uint32_t part = 0; part < kParts; ++part) {
      writer_.fill([&](uint32_t slot, uint32_t full) {
        for (uint32_t block = 0; block < 4; ++block) {
          if (share_.together && block / 2 != share_.rank) continue;
          box(slot + block * kValueBlockBytes, job_.values, full, group_ * kGroupColumns + block * 64,
              key + part * kValueKeys);
        }
      });
    }
  }

  // A step may reach beyond the cache: what is copied then is not seen.
  __device__ __forceinline__ void box(uint32_t to, const CUtensorMap& map, uint32_t full, uint32_t column,
                                      uint32_t key) const {
    const uint32_t row = plane_ + key % job_.a.kv.slots;
    if (share_.together) {
      copy_box_to_blocks(to, &map, full, column, row, 3);
    } else {
      copy_box(to, &map, full, column, row);
    }
  }

  const WgmmaAttentionJob& job_;
  const Share& share_;
  uint32_t group_, plane_;
  Ring::Writer writer_;
};

// One of the two warpgroups that compute.
class Wgmma512::Group {
 public:
  __device__ __forceinline__ Group(const PrefillArguments& a, const Memory& memory, const Share& share, uint32_t group)
      : tile_{a, share.segment, share.kv_head},
        memory_(memory),
        share_(share),
        group_(group),
        ring_{memory.ring(group)} {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) scores_.position[h] = tile_.position(GroupScores::row(h));
  }

  __device__ __forceinline__ void run() {
    tile_.template load<kGroupRows>(memory_.base, group_ * 128 + threadIdx.x % 128);
    named_barrier<256>(kProbabilityBarrier);
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
      more_values<2, kParts / 2 + 1>(step - 1);
      exchange_maxima();
      more_values<kParts / 2 + 1, kParts>(step - 1);
      probabilities(step);
      // The compiler would not let them go on around the loop.
      wgmma_wait<0>();
      release();
      release();
    }
    scores_.scale(o_);
    named_barrier<256>(kProbabilityBarrier);
#pragma unroll
    for (uint32_t part = 0; part < kParts; ++part) values(share_.steps - 1, part);
    wgmma_wait<0>();
    store();
  }

 private:
  __device__ __forceinline__ void release() {
    ring_.release([this](uint32_t barrier) {
      barrier_arrive(barrier);
      if (share_.together) barrier_arrive_in_block(in_block(barrier, share_.rank ^ 1));
    });
  }

  // Starts s = Q K^T of a step; the last of its parts is still under way at the end.
  __device__ __forceinline__ void scores() {
    const uint64_t queries = wgmma_operand(opaque(memory_.base));
#pragma unroll
    for (uint32_t part = 0; part < kParts; ++part) {
      const uint64_t keys = wgmma_operand(ring_.next());
      wgmma_fence();
#pragma unroll
      for (uint32_t k = 0; k < kKeyBlocks * 4; ++k) {
        const uint32_t in_part = k / 4 * kOperandBlockBytes + k % 4 * 32;
        const uint64_t a = further(queries, part * kSlotBytes + in_part), b = further(keys, in_part);
        if (part == 0 && k == 0) {
          wgmma_64_halves<false>(scores_.s, a, b);
        } else {
          wgmma_64_halves<true>(scores_.s, a, b);
        }
      }
      wgmma_commit();
      if (part == 0) {
        scores_.scale(o_);
      } else {
        wgmma_wait<1>();
        release();
      }
    }
  }

  // Starts o += P V of a part of a step's keys.
  __device__ __forceinline__ void values(uint32_t step, uint32_t part) {
    const uint32_t slot = ring_.next(), key = part * kValueKeys;
    if (step == 0) clear_outside<kValueKeys>(slot, share_.key(0) + key, 0, share_.end, group_);
    const uint64_t p = wgmma_operand(memory_.probabilities(step) + key / 64 * kOperandBlockBytes + key % 64 * 2),
                   v = wgmma_operand_rows(slot, kValueBlockBytes);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kValueKeys / 16; ++k) {
      wgmma_256_halves_by_rows(o_, further(p, k * 32), further(v, k * 2048));
    }
    wgmma_commit();
  }
  // Those of parts kFirst ... kEnd, each when the one before the last has ended.
  template <uint32_t kFirst, uint32_t kEnd>
  __device__ __forceinline__ void more_values(uint32_t step) {
#pragma unroll
    for (uint32_t part = kFirst; part < kEnd; ++part) {
      wgmma_wait<1>();
      release();
      values(step, part);
    }
  }

  __device__ __forceinline__ void mask(uint32_t step) {
    const uint32_t first = share_.key(step) + group_ * kGroupKeys;
    if (first + kGroupKeys - 1 > share_.segment.position) scores_.mask(first, visible_span(0));
  }

  __device__ __forceinline__ void publish_maxima() {
    scores_.largest(largest_);
    publish(largest_);
  }
  __device__ __forceinline__ void publish(const float (&of_rows)[2]) const {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      if (GroupScores::lane() % 4 == 0) {
        store_shared(memory_.row(group_, GroupScores::row(h)), __float_as_uint(of_rows[h]));
      }
    }
  }
  __device__ __forceinline__ float published(uint32_t group, uint32_t half) const {
    return __uint_as_float(load_shared_4(memory_.row(group, GroupScores::row(half))));
  }
  __device__ __forceinline__ void exchange_maxima() {
    named_barrier<256>(kMaximaBarrier);
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) largest_[h] = fmaxf(largest_[h], published(group_ ^ 1, h));
    scores_.raise(largest_);
  }

  // P of a step, this group's keys, to shared memory.
  __device__ __forceinline__ void probabilities(uint32_t step) {
    scores_.exponentiate();
    const uint32_t to = memory_.probabilities(step) + group_ * kOperandBlockBytes + GroupScores::lane() % 4 * 4;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        store_shared(to + swizzled_piece(GroupScores::row(h), j), scores_.pair(j, h));
      }
    }
    async_proxy_fence();
  }

  // The rows pass through the place of the queries, which nobody reads any more.
  __device__ __forceinline__ void store() {
    scores_.total_sums();
    publish(scores_.row_sum);
    named_barrier<256>(kMaximaBarrier);
    // Added in one order by both groups: all columns of a row are divided by the same number.
    const float factor[2] = {1.0f / (published(0, 0) + published(1, 0)), 1.0f / (published(0, 1) + published(1, 1))};
    tile_.store(o_, factor, group_, 0, group_ * kGroupColumns, memory_.base + group_ * 4 * kOperandBlockBytes);
  }

  QueryTile<kHd> tile_;
  const Memory& memory_;
  const Share& share_;
  uint32_t group_;
  Ring::Reader ring_;
  GroupScores scores_;
  float largest_[2];
  float o_[kGroupColumns / 2] = {};
};

__device__ __forceinline__ void Wgmma512::attend(const WgmmaAttentionJob& job, const Memory& memory) {
  const Share share(job.a);
  if (share.segment.count == 0) return;  // the other block is not together with it
  if (threadIdx.x == 0) {
    for (uint32_t group = 0; group < 2; ++group) {
      memory.ring(group).initialise(share.together ? 8 : 4);  // a warpgroup, or one of each block
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
    if (warp < 2 && threadIdx.x % 32 == 0) Copies(job, memory, share, warp).run();
  } else {
    take_registers<232>();
    Group(job.a, memory, share, warp / 4 - 1).run();
  }
  // Blocks that are together may end one before the other: the last values come only once the other block has given
  // back all slots before them, and then it neither copies nor arrives here any more.
}

}  // namespace carat::cuda
