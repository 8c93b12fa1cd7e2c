#pragma once

// Prompt attention by warpgroup products, heads of 512 (device code). Two blocks, a cluster, take a tile of 128 rows of
// one KV head. Both have all of its queries; of every 128 keys a block multiplies 64, of the 512 output columns it has
// 256, and what it needs of the other block's keys are their probabilities:
//
//              keys 0-63    64-127                       columns 0-255   256-511
//            +-----------+-----------+                  +-------------+-----------+
//   128 rows | block 0   | block 1   |  -- P, fp16,     | block 0     | block 1   |
//            +-----------+-----------+  exchanged   --> +-------------+-----------+
//
//   block   warp 0: copies keys and values (TMA)      warpgroups 1, 2: 64 rows each
//   memory  queries 128 KB | P of the other block 16 KB | ring of 5 slots of 16 KB: 64 keys x 128 columns of K, or
//           32 x 256 of V
//   step    128 keys, from the last to the first: only the first steps have keys that a row does not see
//   order   of a warpgroup: scores of step i, P V of step i - 1, and while that runs, the softmax of step i
//
// A thread has the same rows in both blocks. It sends its row maxima and its probabilities, as they lie in its
// registers, to its twin, which multiplies by them as they are; warpgroups wait for their twins and for nobody else.
//
// Bound by tensor cores and shared memory alike: 4,096 and 4,400 cycles a step. From L2 come 128 KB a step and block: a
// block that had 64 rows and all columns would need 256, more than L2 gives in that time.
#include "exec/cuda/kernels/attention/hopper/attention_wgmma.cuh"
#include "exec/cuda/kernels/ptx/cluster.cuh"

namespace carat::cuda {

struct Wgmma512 {
  static constexpr uint32_t kHd = 512, kRows = 2 * kGroupRows;
  static constexpr uint32_t kStepKeys = 128, kBlockKeys = 64;
  static constexpr uint32_t kParts = 4;  // slots that hold a block's keys of a step, and those for its values
  static constexpr uint32_t kKeyBlocks = kHd / 64 / kParts, kValueKeys = kStepKeys / kParts;  // of a slot
  static constexpr uint32_t kSlotBytes = kKeyBlocks * kOperandBlockBytes;
  static constexpr uint32_t kValueBlockBytes = kValueKeys * 128;  // of 64 columns
  static_assert(kSlotBytes == 4 * kValueBlockBytes);
  static constexpr uint32_t kQueryBytes = kHd / 64 * kOperandBlockBytes;  // of a warpgroup
  static constexpr uint32_t kProbabilityBytes = kGroupRows * kBlockKeys * 2, kRowBytes = kGroupRows * 4;
  static constexpr int kQueryBarrier = 3;
  using Ring = SlotRing<5, kSlotBytes>;

  // Shared memory, from an address that is a multiple of 1024.
  struct Memory {
    static constexpr uint32_t kProbabilitiesAt = 2 * kQueryBytes;
    static constexpr uint32_t kRingAt = kProbabilitiesAt + 2 * kProbabilityBytes;
    static constexpr uint32_t kRowsAt = kRingAt + Ring::kBytes;
    static constexpr uint32_t kBarriersAt = kRowsAt + 2 * kRowBytes;
    static constexpr uint32_t kBytes = kBarriersAt + Ring::kBarrierBytes + 4 * 8;
    static_assert(kBytes + 1024 <= 227 * 1024);

    uint32_t base;

    // Also where the outputs pass.
    __device__ __forceinline__ uint32_t queries(uint32_t group) const { return base + group * kQueryBytes; }
    __device__ __forceinline__ Ring ring() const { return {base + kRingAt, base + kBarriersAt}; }
    // What the other block's warpgroup sends to this one's: probabilities, and a number of each row.
    __device__ __forceinline__ uint32_t probabilities(uint32_t group) const {
      return base + kProbabilitiesAt + group * kProbabilityBytes;
    }
    __device__ __forceinline__ uint32_t rows(uint32_t group) const { return base + kRowsAt + group * kRowBytes; }
    __device__ __forceinline__ uint32_t probabilities_there(uint32_t group) const {
      return base + kBarriersAt + Ring::kBarrierBytes + group * 16;
    }
    __device__ __forceinline__ uint32_t rows_there(uint32_t group) const { return probabilities_there(group) + 8; }
  };

  // What a block works on.
  struct Share {
    Segment segment;
    uint32_t kv_head;
    uint32_t rank;  // in the cluster
    uint32_t end;   // keys [0, end) are read
    uint32_t steps;

    // Later tiles of a prompt see more keys: they go first, so that the last blocks to run are short.
    __device__ __forceinline__ explicit Share(const PrefillArguments& a) {
      const uint32_t cluster = blockIdx.x / 2;
      kv_head = cluster % a.shape.Hkv;
      rank = blockIdx.x % 2;
      segment = a.tiles[a.tile_count - 1 - cluster / a.shape.Hkv];
      end = segment.position + segment.count;
      steps = (end + kStepKeys - 1) / kStepKeys;
    }

    // First key of a step: they are taken from the last to the first.
    __device__ __forceinline__ uint32_t key(uint32_t step) const { return (steps - 1 - step) * kStepKeys; }
    // That of a part of its values: this block's keys come first.
    __device__ __forceinline__ uint32_t value_key(uint32_t step, uint32_t part) const {
      return key(step) + (part * kValueKeys ^ rank * kBlockKeys);
    }
  };

  class Group;

  // One lane copies this block's keys of a step, then its columns of the values of the step before.
  static __device__ __forceinline__ void copy(const WgmmaAttentionJob& job, const Memory& memory, const Share& share) {
    const KvHead head(job.a.shape, share.segment.sequence, share.kv_head);
    // A step may reach beyond the cache: what is copied then is not seen.
    const auto row = [&](uint32_t key) { return static_cast<uint32_t>(kv_row(job.a.kv, head, key)); };
    Ring::Writer writer{memory.ring()};
    const auto copy_values = [&](uint32_t step) {
      for (uint32_t part = 0; part < kParts; ++part) {
        writer.fill([&](uint32_t slot, uint32_t full) {
          for (uint32_t block = 0; block < 4; ++block) {
            tma_load(slot + block * kValueBlockBytes, &job.values, full, share.rank * kGroupColumns + block * 64,
                     row(share.value_key(step, part)));
          }
        });
      }
    };
    for (uint32_t step = 0; step < share.steps; ++step) {
      for (uint32_t part = 0; part < kParts; ++part) {
        writer.fill([&](uint32_t slot, uint32_t full) {
          for (uint32_t block = 0; block < kKeyBlocks; ++block) {
            tma_load(slot + block * kOperandBlockBytes, &job.keys, full, (part * kKeyBlocks + block) * 64,
                     row(share.key(step) + share.rank * kBlockKeys));
          }
        });
      }
      if (step > 0) copy_values(step - 1);
    }
    copy_values(share.steps - 1);
  }

  // What one block does.
  static __device__ __forceinline__ void attend(const WgmmaAttentionJob& job, const Memory& memory);
};

// One of the two warpgroups that compute.
class Wgmma512::Group {
 public:
  __device__ __forceinline__ Group(const PrefillArguments& a, const Memory& memory, const Share& share, uint32_t group)
      : tile_{a, share.segment, share.kv_head}, memory_(memory), share_(share), group_(group), ring_{memory.ring()} {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) scores_.position[h] = tile_.position(first_row() + GroupScores::row(h));
    lowest_ = tile_.position(first_row());
  }

  __device__ __forceinline__ void run() {
    tile_.template load<kRows>(memory_.base, group_ * 128 + threadIdx.x % 128);
    named_barrier<256>(kQueryBarrier);
    scores();
    wgmma_wait_group<0>();
    release();
    send_maxima(0);
    raise();
    scores_.exponentiate();
    send_probabilities();
    for (uint32_t step = 1; step < share_.steps; ++step) {
      scores();
      values(step - 1, 0, own_);
      wgmma_wait_group<1>();  // the scores are there
      release();
      values(step - 1, 1, own_);
      // Before the maxima: once it has those, the twin may send the next ones to the same place.
      receive_probabilities();
      send_maxima(step);
      next_values(step - 1, 2, twins_);
      raise();
      next_values(step - 1, 3, twins_);
      scores_.exponentiate();
      // The compiler would not let them go on around the loop.
      wgmma_wait_group<0>();
      release();
      release();
      send_probabilities();
    }
    scores_.scale(o_);
    receive_probabilities();
#pragma unroll
    for (uint32_t part = 0; part < kParts; ++part) values(share_.steps - 1, part, part < kParts / 2 ? own_ : twins_);
    wgmma_wait_group<0>();
    store();
  }

 private:
  using Probabilities = GroupScores::Probabilities;

  __device__ __forceinline__ uint32_t first_row() const { return group_ * kGroupRows; }
  __device__ __forceinline__ uint32_t of_twin(uint32_t address) const { return mapa(address, share_.rank ^ 1); }

  __device__ __forceinline__ void release() {
    ring_.release([](uint32_t barrier) { mbarrier_arrive(barrier); });
  }

  // Starts s = Q K^T of a step; the last of its parts is still under way at the end.
  __device__ __forceinline__ void scores() {
    const uint64_t queries = wgmma_descriptor_k_major(opaque(memory_.queries(group_)));
#pragma unroll
    for (uint32_t part = 0; part < kParts; ++part) {
      const uint64_t keys = wgmma_descriptor_k_major(ring_.next());
      wgmma_fence();
#pragma unroll
      for (uint32_t k = 0; k < kKeyBlocks * 4; ++k) {
        const uint32_t in_part = k / 4 * kOperandBlockBytes + k % 4 * 32;
        const uint64_t a = advance_descriptor(queries, part * kSlotBytes + in_part),
                       b = advance_descriptor(keys, in_part);
        if (part == 0 && k == 0) {
          wgmma_m64n64_f16<false>(scores_.s, a, b);
        } else {
          wgmma_m64n64_f16<true>(scores_.s, a, b);
        }
      }
      wgmma_commit_group();
      if (part == 0) {
        scores_.scale(o_);
      } else {
        wgmma_wait_group<1>();
        release();
      }
    }
  }

  // Starts o += P V of a part of a step's keys.
  __device__ __forceinline__ void values(uint32_t step, uint32_t part, const Probabilities& p) {
    const uint32_t slot = ring_.next();
    // Both groups clear what they read: the same zeros.
    if (step == 0) clear_outside<kValueKeys>(slot, share_.value_key(0, part), 0, share_.end, group_);
    const uint64_t v = wgmma_descriptor_n_major(slot, kValueBlockBytes);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kValueKeys / 16; ++k) {
      wgmma_m64n256_f16_b_n_major(o_, p[part * kValueKeys % kBlockKeys / 16 + k], advance_descriptor(v, k * 2048));
    }
    wgmma_commit_group();
  }
  // When those of the part before the last have ended.
  __device__ __forceinline__ void next_values(uint32_t step, uint32_t part, const Probabilities& p) {
    wgmma_wait_group<1>();
    release();
    values(step, part, p);
  }

  // Both twins find the same.
  __device__ __forceinline__ void send_maxima(uint32_t step) {
    const uint32_t first = share_.key(step) + share_.rank * kBlockKeys;
    if (first + kBlockKeys - 1 > lowest_) scores_.mask(first, visible_span(0));
    scores_.largest(largest_);
    send_rows(largest_);
  }
  __device__ __forceinline__ void raise() {
    const Rows twins = receive_rows();
    largest_[0] = fmaxf(largest_[0], twins.of[0]);
    largest_[1] = fmaxf(largest_[1], twins.of[1]);
    scores_.raise(largest_);
  }

  struct Rows {
    float of[2];
  };
  __device__ __forceinline__ void send_rows(const float (&of_rows)[2]) const {
    if (GroupScores::lane() % 4 != 0) return;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      st_async(of_twin(memory_.rows(group_) + GroupScores::row(h) * 4), of_twin(memory_.rows_there(group_)),
               __float_as_uint(of_rows[h]));
    }
  }
  __device__ __forceinline__ Rows receive_rows() {
    wait_for_twin(memory_.rows_there(group_), rows_parity_, kRowBytes);
    Rows rows;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      rows.of[h] = __uint_as_float(load_shared_4(memory_.rows(group_) + GroupScores::row(h) * 4));
    }
    return rows;
  }

  // A thread's probabilities of 16 keys are one piece of 16 bytes; pieces of a warp lie side by side.
  static __device__ __forceinline__ uint32_t piece(uint32_t k) { return (k * 128 + threadIdx.x % 128) * 16; }

  // Keeps them, too. The products that read the last ones must have ended.
  __device__ __forceinline__ void send_probabilities() {
    scores_.keep(own_);
    const uint32_t to = of_twin(memory_.probabilities(group_)), barrier = of_twin(memory_.probabilities_there(group_));
#pragma unroll
    for (uint32_t k = 0; k < kBlockKeys / 16; ++k) st_async(to + piece(k), barrier, own_[k]);
  }
  __device__ __forceinline__ void receive_probabilities() {
    wait_for_twin(memory_.probabilities_there(group_), probabilities_parity_, kProbabilityBytes);
#pragma unroll
    for (uint32_t k = 0; k < kBlockKeys / 16; ++k) {
      const uint4 found = load_shared_16(memory_.probabilities(group_) + piece(k));
      twins_[k][0] = found.x;
      twins_[k][1] = found.y;
      twins_[k][2] = found.z;
      twins_[k][3] = found.w;
    }
  }
  // Until all that the twin sends at a time is there; then announces the next.
  static __device__ __forceinline__ void wait_for_twin(uint32_t barrier, uint32_t& parity, uint32_t bytes) {
    mbarrier_wait_cluster(barrier, parity);
    parity ^= 1;
    if (threadIdx.x % 128 == 0) mbarrier_arrive_expect_tx(barrier, bytes);
  }

  __device__ __forceinline__ void store() {
    scores_.total_sums();
    send_rows(scores_.row_sum);
    const Rows twins = receive_rows();
    // A sum of two numbers is the same in either order: all columns of a row are divided by the same.
    const float factor[2] = {1.0f / (scores_.row_sum[0] + twins.of[0]), 1.0f / (scores_.row_sum[1] + twins.of[1])};
    tile_.store(o_, factor, group_, first_row(), share_.rank * kGroupColumns, memory_.queries(group_));
  }

  QueryTile<kHd> tile_;
  const Memory& memory_;
  const Share& share_;
  uint32_t group_;
  uint32_t lowest_;  // position of the group's rows
  Ring::Reader ring_;
  uint32_t rows_parity_ = 0, probabilities_parity_ = 0;
  GroupScores scores_;
  float largest_[2];
  Probabilities own_, twins_;
  float o_[kGroupColumns / 2] = {};
};

__device__ __forceinline__ void Wgmma512::attend(const WgmmaAttentionJob& job, const Memory& memory) {
  const Share share(job.a);
  if (share.segment.count == 0) return;  // both blocks
  if (threadIdx.x == 0) {
    memory.ring().initialise(8);  // two warpgroups
    for (uint32_t group = 0; group < 2; ++group) {
      mbarrier_init(memory.probabilities_there(group), 1);
      mbarrier_init(memory.rows_there(group), 1);
    }
    fence_mbarrier_init();
    for (uint32_t group = 0; group < 2; ++group) {
      mbarrier_arrive_expect_tx(memory.probabilities_there(group), kProbabilityBytes);
      mbarrier_arrive_expect_tx(memory.rows_there(group), kRowBytes);
    }
  }
  __syncthreads();
  cluster_arrive();
  cluster_wait();
  const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // the compiler sees that lanes agree
  if (warp < 4) {
    setmaxnreg_dec<40>();
    if (threadIdx.x == 0) copy(job, memory, share);
  } else {
    setmaxnreg_inc<232>();
    Group(job.a, memory, share, warp / 4 - 1).run();
  }
  // A block may end before the other: it has received everything it is sent.
}

}  // namespace carat::cuda
