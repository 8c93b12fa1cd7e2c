#pragma once

// Device code: the weights on their way to the warps that multiply them.
//
// A ring of slots in shared memory. A few warps walk the list of stages ahead of all others and copy this block's
// weights, each every so many slots, as far as slots are free; the copies run in the background and announce themselves
// at the slot's `full` barrier. The others walk the same slots, and each warp says at the slot's `empty` barrier when
// it has read its part.
//
// A slot holds some row groups of a product (TokenChunks), plane after plane: quants, high bits, scales, each
// [row][step]. Rows of gates come before those of ups; rows put together from experts are [expert][row][step]. The
// factors of Q6_K, two bytes a step, are copied in whole lines of 16 bytes, in which a run begins where it begins in
// memory.
#include "exec/cuda/kernels/hopper.cuh"
#include "exec/cuda/kernels/token.h"

namespace carat::cuda {

// A block's row groups of a product.
struct TaskList {
  uint32_t first_group, groups;
};
__device__ __forceinline__ TaskList task_list(const TokenProduct& p) {
  TaskList list;
  const uint32_t hands = p.groups / p.deal;
  list.first_group = hands * blockIdx.x / gridDim.x * p.deal;
  list.groups = hands * (blockIdx.x + 1) / gridDim.x * p.deal - list.first_group;
  return list;
}

__device__ __forceinline__ uint32_t quotient(uint32_t value, uint32_t inverse) {
  return inverse == 0 ? value : __umulhi(value, inverse);
}

// This block's part of an attention stage: tiles [first, end) of 64 positions of one KV head; `splits` blocks share it.
struct AttentionShare {
  uint32_t begin;  // the first visible position
  uint32_t slot;   // of the position in the cache
  uint32_t kv_head, group, split, splits, first, end;
};

__device__ __forceinline__ AttentionShare attention_share(const TokenAttention& a, uint32_t position) {
  AttentionShare share;
  share.slot = position % a.kv.slots;
  share.group = a.shape.H / a.shape.Hkv;
  share.kv_head = blockIdx.x % a.shape.Hkv;
  share.split = blockIdx.x / a.shape.Hkv;
  share.begin = a.shape.window != 0 && position >= a.shape.window ? position - a.shape.window + 1 : 0;
  const uint32_t first_tile = share.begin / kTokenTile, tiles = position / kTokenTile - first_tile + 1;
  share.splits = min(tiles, a.most_splits);
  share.first = share.end = 0;
  if (share.split < share.splits) {
    share.first = first_tile + tiles * share.split / share.splits;
    share.end = first_tile + tiles * (share.split + 1) / share.splits;
  }
  return share;
}

// Visible rows of a tile of 64.
struct TileRows {
  uint32_t first, last;
};
__device__ __forceinline__ TileRows tile_rows(const AttentionShare& share, uint32_t tile, uint32_t position) {
  const uint32_t at = tile * kTokenTile;
  return {share.begin > at ? share.begin - at : 0, min(position - at, kTokenTile - 1)};
}
// Whether a share's keys and values come through the ring (token_attention_deep.cuh).
__device__ __forceinline__ bool through_ring(const TokenAttention& a, const AttentionShare& share) {
  return a.shape.hd == kTokenDeepDims && share.end - share.first >= kTokenDeepTiles;
}

// A stage as it lies in shared memory, with this block's part of it: worked out ahead, because divisions take long.
struct WindowStage {
  TokenStage stage;
  union {
    TaskList list;         // kProduct
    AttentionShare share;  // kAttention, kCombine
  };
};

// Where the planes of a product's weights lie in a slot, in bytes.
struct SlotLayout {
  uint32_t high, scales, super;
  uint32_t super_run;  // bytes of the factors of a run
};
__device__ __forceinline__ SlotLayout slot_layout(const TokenProduct& p, const PackedBytes& bytes) {
  const uint32_t rows = p.chunks.groups * kTokenRows, cells = rows * p.chunks.cut_steps;
  SlotLayout at;
  at.high = cells * bytes.quants;
  at.scales = at.high + cells * bytes.high;
  at.super = at.scales + cells * bytes.scales;
  at.super_run = token_super_bytes(p.expert_steps != 0 ? rows * p.expert_steps
                                   : p.chunks.cuts > 1 ? p.chunks.cut_steps
                                                       : cells);
  return at;
}

// Where the rows of a row group begin, in cells (row * steps): rows 0 and 1 at `first`, rows 2 and 3 at `second`.
struct GroupCells {
  uint32_t part, second_part;
  uint64_t first, second;
};

__device__ __forceinline__ GroupCells locate_group(const TokenProduct& p, uint32_t group, const uint32_t* expert_ids) {
  GroupCells at;
  if (p.output == TokenOutput::kGeglu) {
    at.part = 0;
    at.second_part = 1;
    uint64_t gate = 2 * group, up = gate;
    if (p.expert_groups != 0) {
      const uint32_t slot = group / p.expert_groups, within = 2 * (group % p.expert_groups);
      gate = static_cast<uint64_t>(expert_ids[slot]) * p.expert_stride[0] + p.expert_offset[0] + within;
      up = static_cast<uint64_t>(expert_ids[slot]) * p.expert_stride[1] + p.expert_offset[1] + within;
    }
    at.first = gate * p.steps;
    at.second = up * p.steps;
    return at;
  }
  at.part = group < p.part_end[0] ? 0 : group < p.part_end[1] ? 1 : 2;
  at.second_part = at.part;
  const uint32_t local = group - (at.part == 0 ? 0 : p.part_end[at.part - 1]);
  const uint32_t row_steps = p.expert_steps != 0 ? p.expert_steps : p.steps;
  at.first = static_cast<uint64_t>(local) * kTokenRows * row_steps;
  at.second = at.first + 2 * row_steps;
  return at;
}

// The two barriers of every slot, as addresses.
struct RingBarriers {
  uint32_t full, empty;
  __device__ explicit RingBarriers(uint64_t* memory)
      : full(shared_address(memory)), empty(full + kTokenMaxSlots * sizeof(uint64_t)) {}
  __device__ void init(uint32_t slots) const {
    for (uint32_t s = 0; s < slots; ++s) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, kTokenWarps);
    }
    barrier_init_fence();
  }
};

// A place in the ring; the parity tells apart the rounds of its barriers.
struct RingPlace {
  uint32_t slot = 0, parity = 0;
  __device__ void advance(uint32_t slots) {
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// Weights are read once per token: they must not push the small vectors that every token reads out of the L2 cache.
__device__ __forceinline__ uint64_t read_once_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// A warp that loads. All of its lanes call everything.
class WeightLoader {
 public:
  // `turn`: slots until this warp's first.
  __device__ WeightLoader(uint32_t slots_at, const RingBarriers& barriers, const TokenMemory& memory,
                          const uint32_t* expert_ids, uint32_t turn)
      : turn_(turn),
        slots_at_(slots_at),
        barriers_(barriers),
        memory_(memory),
        expert_ids_(expert_ids),
        policy_(read_once_policy()),
        lane_(threadIdx.x % 32) {}

  // Stages [0, job.stage_count) one after the other. `descriptions`: two stages of this warp's own. `routed`: counted
  // up to a stage's number once its experts are chosen.
  // `begun`: the number of the stage that the others have begun.
  __device__ void run(const TokenJob& job, TokenStage* descriptions, const volatile uint32_t* routed,
                      const volatile uint32_t* begun, uint32_t position, uint32_t sequence) {
    uint4 words = fetch(job, 0);
    for (uint32_t index = 0; index < job.stage_count; ++index) {
      TokenStage& stage = descriptions[index % 2];
      if (lane_ < sizeof(TokenStage) / 16) reinterpret_cast<uint4*>(&stage)[lane_] = words;
      __syncwarp();
      words = fetch(job, index + 1);
      if (stage.kind == TokenKind::kAttention) {
        const AttentionShare share = attention_share(stage.attention, position);
        if (!through_ring(stage.attention, share)) continue;
        if (!stage.attention.owns) wait_for_writer(stage.attention, begun);
        load_cache(stage.attention, share, position, sequence);
      }
      if (stage.kind != TokenKind::kProduct) continue;
      if (stage.product.router != nullptr) {
        while (*routed < stage.number) {
        }
        __threadfence_block();
        __syncwarp();
      }
      load(stage.product);
    }
  }

 private:
  __device__ uint4 fetch(const TokenJob& job, uint32_t index) const {
    static_assert(sizeof(TokenStage) % 16 == 0 && sizeof(TokenStage) <= 32 * 16);
    if (index >= job.stage_count || lane_ >= sizeof(TokenStage) / 16) return make_uint4(0, 0, 0, 0);
    return reinterpret_cast<const uint4*>(job.stages + index)[lane_];
  }

  // Waits until the next slot is free and says true, where it is this warp's turn; leaves it to another one otherwise.
  __device__ __forceinline__ bool takes_slot() {
    if (turn_ != 0) {
      --turn_;
      place_.advance(memory_.slots);
      return false;
    }
    turn_ = kTokenLoaderWarps - 1;
    barrier_wait(barriers_.empty + place_.slot * 8, place_.parity ^ 1);
    return true;
  }
  // All lanes have begun their copies to it.
  __device__ __forceinline__ void slot_is_under_way() {
    __syncwarp();
    if (lane_ == 0) barrier_arrive(barriers_.full + place_.slot * 8);
    place_.advance(memory_.slots);
  }

  // Another layer's attention wrote the token's own key and value, on another SM. Two stages later their results make
  // the output product, the stage after that takes all of its rows: once the next has begun, they are there.
  __device__ void wait_for_writer(const TokenAttention& a, const volatile uint32_t* begun) const {
    while (*begun < a.kv_stage + 4) {
    }
    __threadfence();
    asm volatile("fence.proxy.async.global;" ::: "memory");
    __syncwarp();
  }

  // This block's share of a long attention stage, tile after tile: keys, then values. A lane copies a row.
  __device__ void load_cache(const TokenAttention& a, const AttentionShare& share, uint32_t position,
                             uint32_t sequence) {
    constexpr uint32_t hd = kTokenDeepDims;
    const uint32_t slot_keys = 1u << a.slot_shift;
    const uint64_t plane = static_cast<uint64_t>(sequence * a.shape.Hkv + share.kv_head) * a.kv.slots;
#pragma unroll 1
    for (uint32_t tile = share.first; tile < share.end; ++tile) {
      // Tiles before the position's lie before it, or at the end of the ring of positions.
      const uint32_t back = position - tile * kTokenTile;
      const uint64_t first = plane + (share.slot >= back ? share.slot : share.slot + a.kv.slots) - back;
      const TileRows rows = tile_rows(share, tile, position);
#pragma unroll 1
      for (uint32_t kind = 0; kind < 2; ++kind) {
        const __half* from = (kind == 0 ? a.kv.k : a.kv.v) + first * hd;
#pragma unroll 1
        for (uint32_t chunk = rows.first >> a.slot_shift; chunk <= rows.last >> a.slot_shift; ++chunk) {
          if (!takes_slot()) continue;
          const uint32_t row = chunk * slot_keys + lane_;
          if (lane_ < slot_keys && row >= rows.first && row <= rows.last) copy_cache_row(from + row * hd);
          slot_is_under_way();
        }
      }
    }
  }

  __device__ void copy_cache_row(const __half* from) const {
    constexpr uint32_t hd = kTokenDeepDims;
    const uint32_t barrier = barriers_.full + place_.slot * 8;
    const uint32_t destination = slots_at_ + place_.slot * memory_.slot_bytes + lane_ * token_cache_row(hd);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(hd * 2) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
        "l"(from), "r"(hd * 2), "r"(barrier)
        : "memory");
  }

  // A lane copies the same plane of the same run of every slot. What it needs for that is worked out once a product:
  // one warp alone waits for every instruction, and has a slot to fill every few hundred cycles.
  __device__ void load(const TokenProduct& p) {
    const TaskList list = task_list(p);
    const PackedBytes bytes = packed_bytes(p.packing);
    const SlotLayout layout = slot_layout(p, bytes);
    const bool in_turn = p.expert_steps != 0, cut = p.chunks.cuts > 1 && !in_turn;
    const uint32_t planes = 1 + (bytes.high != 0) + (bytes.scales != 0) + (bytes.super != 0);
    const uint32_t runs = in_turn ? p.chunks.cut_steps / p.expert_steps : kTokenRuns;
    run_ = lane_ % runs;
    const uint32_t which = lane_ / runs;
    plane_ = which == 0 ? 0 : which == 1 ? (bytes.high != 0 ? 1 : 2) : which == 2 ? (bytes.high != 0 ? 2 : 3) : 3;
    cell_bytes_ = plane_ == 0 ? bytes.quants : plane_ == 1 ? bytes.high : plane_ == 2 ? bytes.scales : bytes.super;
    to_ = plane_ == 0 ? 0 : plane_ == 1 ? layout.high : plane_ == 2 ? layout.scales : layout.super;
    super_run_ = layout.super_run;
    works_ = which < planes;
    const uint32_t end = list.first_group + list.groups;
#pragma unroll 1
    for (uint32_t group = list.first_group; group < end; group += p.chunks.groups) {
      const uint32_t groups = min(p.chunks.groups, end - group);
#pragma unroll 1
      for (uint32_t c = 0; c < p.chunks.cuts; ++c) {
        if (!takes_slot()) continue;
        if (works_) {
          if (in_turn) {
            copy_expert(p, group, groups, c);
          } else if (cut) {
            copy_row(p, group, c);
          } else if (p.expert_groups != 0) {
            copy_expert_rows(p, group, groups);
          } else {
            copy_rows(p, group, groups);
          }
        }
        slot_is_under_way();
      }
    }
  }

  // Rows of matrix `run_` of all row groups in [group, group + groups).
  __device__ void copy_rows(const TokenProduct& p, uint32_t group, uint32_t groups) const {
    if (run_ >= p.parts) return;
    const bool geglu = p.output == TokenOutput::kGeglu;
    const uint32_t first = geglu || run_ == 0 ? 0 : p.part_end[run_ - 1];
    const uint32_t last = geglu || run_ + 1 == p.parts ? p.groups : p.part_end[run_];
    const uint32_t begin = max(group, first), end = min(group + groups, last);
    if (begin >= end) return;
    const uint32_t cells = (geglu ? 2 : kTokenRows) * p.steps;
    const uint32_t ups = geglu ? run_ * p.chunks.groups * cells : 0;
    copy(p.planes[run_], (begin - first) * cells, ups + (begin - group) * cells, (end - begin) * cells);
  }

  // Rows of the gates (even runs) and ups (odd ones) of the experts that the row groups belong to, at most two.
  __device__ void copy_expert_rows(const TokenProduct& p, uint32_t group, uint32_t groups) const {
    const uint32_t slot = group / p.expert_groups + run_ / 2, part = run_ % 2, first = slot * p.expert_groups;
    const uint32_t begin = max(group, first), end = min(group + groups, first + p.expert_groups);
    if (begin >= end) return;
    const uint32_t cells = 2 * p.steps;
    const uint64_t row =
        static_cast<uint64_t>(expert_ids_[slot]) * p.expert_stride[part] + p.expert_offset[part] + 2 * (begin - first);
    copy(p.planes[part], row * p.steps, (part * p.chunks.groups + begin - group) * cells, (end - begin) * cells);
  }

  // Cut `c` of row `run_` of a row group.
  __device__ void copy_row(const TokenProduct& p, uint32_t group, uint32_t c) const {
    const GroupCells at = locate_group(p, group, expert_ids_);
    const uint32_t first_step = c * p.chunks.cut_steps;
    copy(p.planes[run_ < 2 ? at.part : at.second_part],
         (run_ < 2 ? at.first : at.second) + (run_ & 1) * p.steps + first_step, run_ * p.chunks.cut_steps,
         min(p.chunks.cut_steps, p.steps - first_step));
  }

  // Expert `run_` of cut `c`: its part of the rows of the row groups.
  __device__ void copy_expert(const TokenProduct& p, uint32_t group, uint32_t groups, uint32_t c) const {
    const uint32_t slot = c * (p.chunks.cut_steps / p.expert_steps) + run_;
    if (slot * p.expert_steps >= p.steps) return;
    const uint32_t cells = kTokenRows * p.expert_steps;
    const uint64_t row = static_cast<uint64_t>(expert_ids_[slot]) * p.expert_stride[0] + kTokenRows * group;
    copy(p.planes[0], row * p.expert_steps, run_ * p.chunks.groups * cells, groups * cells);
  }

  // `cells` cells from `cell` on, to cell `to` of the slot. Announced before it begins, so that the slot is full when
  // all copies have come.
  __device__ void copy(const TokenPlanes& planes, uint64_t cell, uint32_t to, uint32_t cells) const {
    const void* plane = reinterpret_cast<const void* const*>(&planes)[plane_];
    uint64_t from = cell * cell_bytes_, end = from + cells * cell_bytes_;
    uint32_t destination = slots_at_ + place_.slot * memory_.slot_bytes + to_ + to * cell_bytes_;
    if (cell_bytes_ == 2) {
      from &= ~uint64_t{15};
      end = (end + 15) & ~uint64_t{15};
      destination = slots_at_ + place_.slot * memory_.slot_bytes + to_ + run_ * super_run_;
    }
    const uint32_t barrier = barriers_.full + place_.slot * 8, bytes = static_cast<uint32_t>(end - from);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(destination),
        "l"(static_cast<const char*>(plane) + from), "r"(bytes), "r"(barrier), "l"(policy_)
        : "memory");
  }

  uint32_t turn_;
  uint32_t slots_at_;
  RingBarriers barriers_;
  TokenMemory memory_;
  const uint32_t* expert_ids_;
  uint64_t policy_;
  uint32_t lane_;
  RingPlace place_;
  // This lane's part of the product.
  uint32_t run_ = 0, plane_ = 0, cell_bytes_ = 0, to_ = 0, super_run_ = 0;
  bool works_ = false;
};

}  // namespace carat::cuda
