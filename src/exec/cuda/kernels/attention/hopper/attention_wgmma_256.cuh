#pragma once

// Prompt attention by warpgroup products, heads of 256, with or without a window (device code). A block takes a tile of
// 128 rows of one KV head; each of two warpgroups has 64 of them, all keys and all columns, so that probabilities go
// from its accumulators straight into the second product.
//
//   block   warp 0: copies keys and values (TMA)      warpgroups 1, 2: 64 rows each
//   memory  queries 64 KB | ring of 5 slots of 32 KB: 64 keys x 256 columns of K or V
//   order   of a warpgroup: scores of key tile i, P V of tile i - 1, and while that runs, the softmax of tile i
//           (the two are not in step, so that one's softmax meets the other's products)
//
// Bound by tensor cores and shared memory alike: 64 keys take 2,048 cycles of either (64 KB written, 192 KB read). Only
// key tiles inside the union of the rows' ranges are visited, and only those at a warpgroup's edges are masked.
#include "exec/cuda/kernels/attention/hopper/attention_wgmma.cuh"

namespace carat::cuda {

struct Wgmma256 {
  static constexpr uint32_t kHd = 256, kRows = 2 * kGroupRows;
  static constexpr uint32_t kTileKeys = 64, kBlocks = kHd / 64;
  static constexpr int kQueryBarrier = 3;
  using Ring = SlotRing<5, kBlocks * kOperandBlockBytes>;

  // Shared memory, from an address that is a multiple of 1024.
  struct Memory {
    static constexpr uint32_t kRingAt = kRows / kGroupRows * kBlocks * kOperandBlockBytes;
    static constexpr uint32_t kBarriersAt = kRingAt + Ring::kBytes;
    static constexpr uint32_t kBytes = kBarriersAt + Ring::kBarrierBytes;
    static_assert(kBytes + 1024 <= 227 * 1024);

    uint32_t base;

    // Also where the outputs pass.
    __device__ __forceinline__ uint32_t queries(uint32_t group) const {
      return base + group * kBlocks * kOperandBlockBytes;
    }
    __device__ __forceinline__ Ring ring() const { return {base + kRingAt, base + kBarriersAt}; }
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
      span = visible_span(a.shape.window);
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
    const KvHead head(job.a.shape, share.segment.sequence, share.kv_head);
    Ring::Writer writer{memory.ring()};
    const auto copy_tile = [&](const CUtensorMap& map, uint32_t tile) {
      const auto row = static_cast<uint32_t>(kv_row(job.a.kv, head, share.key(tile)));
      writer.fill([&](uint32_t slot, uint32_t full) {
        for (uint32_t block = 0; block < kBlocks; ++block) {
          tma_load(slot + block * kOperandBlockBytes, &map, full, block * 64, row);
        }
      });
    };
    for (uint32_t tile = 0; tile < share.tiles; ++tile) {
      copy_tile(job.keys, tile);
      if (tile > 0) copy_tile(job.values, tile - 1);
    }
    copy_tile(job.values, share.tiles - 1);
  }

  // What one block does.
  static __device__ __forceinline__ void attend(const WgmmaAttentionJob& job, const Memory& memory);
};

// One of the two warpgroups that compute.
class Wgmma256::Group {
 public:
  __device__ __forceinline__ Group(const PrefillArguments& a, const Memory& memory, const Share& share, uint32_t group)
      : tile_{a, share.segment, share.kv_head}, memory_(memory), share_(share), group_(group), ring_{memory.ring()} {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) scores_.position[h] = tile_.position(first_row() + GroupScores::row(h));
    lowest_ = tile_.position(first_row());
    highest_ = tile_.position(first_row() + kGroupRows - 1);
  }

  __device__ __forceinline__ void run() {
    tile_.template load<kRows>(memory_.base, group_ * 128 + threadIdx.x % 128);
    named_barrier<256>(kQueryBarrier);
    scores();
    wgmma_wait_group<0>();
    release();
    softmax(0);
    scores_.keep(p_);
    for (uint32_t tile = 1; tile < share_.tiles; ++tile) {
      scores();
      values(tile - 1);
      wgmma_wait_group<1>();  // the scores are there
      release();
      softmax(tile);
      wgmma_wait_group<0>();
      release();
      scores_.scale(o_);
      scores_.keep(p_);  // the products that read the last ones have ended
    }
    values(share_.tiles - 1);
    wgmma_wait_group<0>();
    scores_.total_sums();
    const float factor[2] = {1.0f / scores_.row_sum[0], 1.0f / scores_.row_sum[1]};
    tile_.store(o_, factor, group_, first_row(), 0, memory_.queries(group_));
  }

 private:
  __device__ __forceinline__ uint32_t first_row() const { return group_ * kGroupRows; }

  __device__ __forceinline__ void release() {
    ring_.release([](uint32_t barrier) { mbarrier_arrive(barrier); });
  }

  // Starts s = Q K^T of the next tile.
  __device__ __forceinline__ void scores() {
    const uint64_t queries = wgmma_descriptor_k_major(opaque(memory_.queries(group_))),
                   keys = wgmma_descriptor_k_major(ring_.next());
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kHd / 16; ++k) {
      const uint32_t offset = k / 4 * kOperandBlockBytes + k % 4 * 32;
      if (k == 0) {
        wgmma_m64n64_f16<false>(scores_.s, queries, keys);
      } else {
        wgmma_m64n64_f16<true>(scores_.s, advance_descriptor(queries, offset), advance_descriptor(keys, offset));
      }
    }
    wgmma_commit_group();
  }

  // Starts o += P V.
  __device__ __forceinline__ void values(uint32_t tile) {
    const uint32_t slot = ring_.next();
    // Both groups clear what they read: the same zeros.
    if (tile == 0 || tile + 1 == share_.tiles) {
      clear_outside<kTileKeys>(slot, share_.key(tile), share_.begin, share_.end, group_);
    }
    const uint64_t v = wgmma_descriptor_n_major(slot, kOperandBlockBytes);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kTileKeys / 16; ++k)
      wgmma_m64n256_f16_b_n_major(o_, p_[k], advance_descriptor(v, k * 2048));
    wgmma_commit_group();
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

  QueryTile<kHd> tile_;
  const Memory& memory_;
  const Share& share_;
  uint32_t group_;
  uint32_t lowest_, highest_;  // positions of the group's rows
  Ring::Reader ring_;
  GroupScores scores_;
  GroupScores::Probabilities p_;
  float o_[kGroupColumns / 2] = {};
};

__device__ __forceinline__ void Wgmma256::attend(const WgmmaAttentionJob& job, const Memory& memory) {
  const Share share(job.a);
  if (share.segment.count == 0) return;
  if (threadIdx.x == 0) {
    memory.ring().initialise(8);  // two warpgroups
    fence_mbarrier_init();
  }
  __syncthreads();
  const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // the compiler sees that lanes agree
  if (warp < 4) {
    setmaxnreg_dec<40>();
    if (threadIdx.x == 0) copy(job, memory, share);
  } else {
    setmaxnreg_inc<232>();
    Group(job.a, memory, share, warp / 4 - 1).run();
  }
}

}  // namespace carat::cuda
