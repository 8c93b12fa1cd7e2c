#pragma once

// Prompt attention by warpgroup products, heads of 256, with or without a window (device code). A block takes a tile of
// 128 rows of one KV head; each of two warpgroups has 64 of them, all keys and all columns, so that probabilities go
// from its accumulators straight into the second product.
//
//   block   warp 0: copies keys and values (TMA)      warpgroups 1, 2: 64 rows each
//   memory  queries 64 KB | ring of 5 slots of 32 KB: 64 keys x 256 columns of K or V
//   order   of a warpgroup: scores of key tile i, P V of tile i - 1, and while that runs, the softmax of tile i; the
//   two
//           warpgroups are not in step, so that one's softmax meets the other's products
//
// Bound by tensor cores and shared memory alike: 64 keys take 2,048 cycles of either (64 KB written, 192 KB read). Only
// key tiles inside the union of the rows' ranges are visited, and only those at a warpgroup's edges are masked.
#include "exec/cuda/kernels/attention_wgmma.cuh"

namespace carat::cuda {

struct Wgmma256 {
  static constexpr uint32_t kHd = 256, kRows = 2 * kGroupRows;
  static constexpr uint32_t kTileKeys = 64, kBlocks = kHd / 64;
  static constexpr uint32_t kSlots = 5, kSlotBytes = kBlocks * kOperandBlockBytes;
  static constexpr int kQueryBarrier = 3;
  using Ring = RingPosition<kSlots>;

  // Shared memory, from an address that is a multiple of 1024.
  struct Memory {
    static constexpr uint32_t kRingAt = kRows / kGroupRows * kBlocks * kOperandBlockBytes;
    static constexpr uint32_t kBarriersAt = kRingAt + kSlots * kSlotBytes;
    static constexpr uint32_t kBytes = kBarriersAt + 2 * kSlots * 8;
    static_assert(kBytes + 1024 <= 227 * 1024);

    uint32_t base;

    // Also where the outputs pass.
    __device__ __forceinline__ uint32_t queries(uint32_t group) const {
      return base + group * kBlocks * kOperandBlockBytes;
    }
    __device__ __forceinline__ uint32_t slot(uint32_t slot) const { return base + kRingAt + slot * kSlotBytes; }
    __device__ __forceinline__ uint32_t full(uint32_t slot) const { return base + kBarriersAt + slot * 8; }
    __device__ __forceinline__ uint32_t free(uint32_t slot) const { return full(kSlots + slot); }
  };

  // What a block works on: keys [begin, end), in `tiles` tiles from first_key on.
  struct Share {
    Segment segment;
    uint32_t kv_head, span;
    uint32_t begin, end, first_key, tiles;

    // Later tiles of a prompt see more keys: they go first, so that the last blocks to run are short.
    __device__ __forceinline__ explicit Share(const PrefillArguments& a) {
      kv_head = blockIdx.x % a.shape.Hkv;
      segment = a.tiles[a.tile_count - 1 - blockIdx.x / a.shape.Hkv];
      span = a.shape.window == 0 ? 0x7fffffffu : a.shape.window - 1;
      begin = segment.position > span ? segment.position - span : 0;
      end = segment.position + segment.count;
      first_key = begin / kTileKeys * kTileKeys;
      tiles = (end - first_key + kTileKeys - 1) / kTileKeys;
    }
    __device__ __forceinline__ uint32_t key(uint32_t tile) const { return first_key + tile * kTileKeys; }
  };

  class Group;

  // One lane copies the key tiles, each one's values after the keys of the next.
  static __device__ __forceinline__ void copy(const WgmmaAttentionJob& job, const Memory& memory, const Share& share) {
    const uint32_t plane = (share.segment.sequence * job.a.shape.Hkv + share.kv_head) * job.a.kv.slots;
    Ring ring;
    const auto slot = [&](const CUtensorMap& map, uint32_t tile) {
      const uint32_t full = memory.full(ring.slot), row = plane + share.key(tile) % job.a.kv.slots;
      barrier_wait(memory.free(ring.slot), ring.parity ^ 1);
      barrier_expect(full, kSlotBytes);
      for (uint32_t block = 0; block < kBlocks; ++block) {
        copy_box(memory.slot(ring.slot) + block * kOperandBlockBytes, &map, full, block * 64, row);
      }
      ring.advance();
    };
    for (uint32_t tile = 0; tile < share.tiles; ++tile) {
      slot(job.keys, tile);
      if (tile > 0) slot(job.values, tile - 1);
    }
    slot(job.values, share.tiles - 1);
  }

  // What one block does.
  static __device__ __forceinline__ void attend(const WgmmaAttentionJob& job, const Memory& memory);
};

// One of the two warpgroups that compute.
class Wgmma256::Group {
 public:
  __device__ __forceinline__ Group(const PrefillArguments& a, const Memory& memory, const Share& share, uint32_t group)
      : tile_{a, share.segment, share.kv_head}, memory_(memory), share_(share), group_(group) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) scores_.position[h] = tile_.position(first_row() + GroupScores::row(h));
    lowest_ = tile_.position(first_row());
    highest_ = tile_.position(first_row() + kGroupRows - 1);
#pragma unroll
    for (uint32_t i = 0; i < kGroupColumns / 2; ++i) o_[i] = 0.0f;
  }

  __device__ __forceinline__ void run() {
    tile_.template load<kRows>(memory_.base, group_ * 128 + threadIdx.x % 128);
    named_barrier<256>(kQueryBarrier);
    scores();
    wgmma_wait<0>();
    release();
    softmax(0);
    keep_probabilities();
    for (uint32_t tile = 1; tile < share_.tiles; ++tile) {
      scores();
      values(tile - 1);
      wgmma_wait<1>();  // the scores are there
      release();
      softmax(tile);
      wgmma_wait<0>();
      release();
      scores_.scale(o_);
      keep_probabilities();
    }
    values(share_.tiles - 1);
    wgmma_wait<0>();
    scores_.total_sums();
    const float factor[2] = {1.0f / scores_.row_sum[0], 1.0f / scores_.row_sum[1]};
    tile_.store(o_, factor, group_, first_row(), 0, memory_.queries(group_));
  }

 private:
  __device__ __forceinline__ uint32_t first_row() const { return group_ * kGroupRows; }

  // The next slot of the ring, once its bytes are there.
  __device__ __forceinline__ uint32_t next_slot() {
    barrier_wait(memory_.full(reading_.slot), reading_.parity);
    const uint32_t address = memory_.slot(reading_.slot);
    reading_.advance();
    return address;
  }
  // Gives back the oldest slot that has not been: all products that read it have ended.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (GroupScores::lane() == 0) barrier_arrive(memory_.free(released_.slot));
    released_.advance();
  }

  // Starts s = Q K^T of the next tile.
  __device__ __forceinline__ void scores() {
    const uint64_t queries = wgmma_operand(opaque(memory_.queries(group_))), keys = wgmma_operand(next_slot());
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kHd / 16; ++k) {
      const uint32_t offset = k / 4 * kOperandBlockBytes + k % 4 * 32;
      if (k == 0) {
        wgmma_64_halves<false>(scores_.s, queries, keys);
      } else {
        wgmma_64_halves<true>(scores_.s, further(queries, offset), further(keys, offset));
      }
    }
    wgmma_commit();
  }

  // Starts o += P V.
  __device__ __forceinline__ void values(uint32_t tile) {
    const uint32_t slot = next_slot();
    // Both groups clear what they read: the same zeros.
    if (tile == 0 || tile + 1 == share_.tiles) {
      clear_outside<kTileKeys>(slot, share_.key(tile), share_.begin, share_.end, group_);
    }
    const uint64_t v = wgmma_operand_rows(slot, kOperandBlockBytes);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kTileKeys / 16; ++k) wgmma_256_halves_by_rows(o_, p_[k], further(v, k * 2048));
    wgmma_commit();
  }

  __device__ __forceinline__ void softmax(uint32_t tile) {
    const uint32_t key = share_.key(tile);
    // A group may have tiles of which it sees nothing: they are as cheap as they are rare.
    if (key + kTileKeys - 1 > lowest_ || highest_ - key > share_.span) scores_.mask(key, share_.span);
    float largest[2];
    scores_.largest(largest);
    scores_.raise(largest);
    scores_.exponentiate();
  }

  // As first operands in registers: those of 16 neighbouring keys are one as they lie. The products that read the last
  // ones must have ended.
  __device__ __forceinline__ void keep_probabilities() {
#pragma unroll
    for (uint32_t k = 0; k < kTileKeys / 16; ++k) {
      p_[k][0] = scores_.pair(2 * k, 0);
      p_[k][1] = scores_.pair(2 * k, 1);
      p_[k][2] = scores_.pair(2 * k + 1, 0);
      p_[k][3] = scores_.pair(2 * k + 1, 1);
    }
  }

  QueryTile<kHd> tile_;
  const Memory& memory_;
  const Share& share_;
  uint32_t group_;
  uint32_t lowest_, highest_;  // positions of the group's rows
  Ring reading_, released_;
  GroupScores scores_;
  uint32_t p_[kTileKeys / 16][4];
  float o_[kGroupColumns / 2];
};

__device__ __forceinline__ void Wgmma256::attend(const WgmmaAttentionJob& job, const Memory& memory) {
  const Share share(job.a);
  if (share.segment.count == 0) return;
  if (threadIdx.x == 0) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      barrier_init(memory.full(slot), 1);
      barrier_init(memory.free(slot), 8);  // the warps that read it
    }
    barrier_init_fence();
  }
  __syncthreads();
  const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // the compiler sees that lanes agree
  if (warp < 4) {
    give_registers<40>();
    if (threadIdx.x == 0) copy(job, memory, share);
  } else {
    take_registers<232>();
    Group(job.a, memory, share, warp / 4 - 1).run();
  }
}

}  // namespace carat::cuda
