#pragma once

// Device code: the weights on their way to the warps that multiply them.
//
// A ring of slots in shared memory. A few warps walk the list of stages ahead of all others and copy this block's
// weights, each to slots of its own, as far as they are free; the copies run in the background and announce themselves
// at the slot's `full` barrier. Tasks belong to the warps in turn, and a task's warp says at the slot's `empty` barrier
// when it has read it.
//
// A slot holds a task's rows or a cut of them, plane after plane: quants, high bits, scales, each [row][step]. Rows of
// gates come before those of ups; rows put together from experts are [expert][row][step]. The factors of Q6_K, two
// bytes a step, are copied in whole lines of 16 bytes, in which a run begins where it begins in memory.
#include "exec/cuda/kernels/attention/kv_view.cuh"
#include "exec/cuda/kernels/megakernel/megakernel.h"
#include "exec/cuda/kernels/ptx/megakernel.cuh"

namespace carat::cuda {

// A block's tasks of a product.
struct TaskList {
  uint32_t first, count;
};
__device__ __forceinline__ TaskList task_list(const MegakernelProduct& p) {
  TaskList list;
  const uint32_t hands = p.tasks / p.deal;
  list.first = hands * blockIdx.x / gridDim.x * p.deal;
  list.count = hands * (blockIdx.x + 1) / gridDim.x * p.deal - list.first;
  return list;
}

// This block's part of an attention stage: tiles [first, end) of one KV head; `splits` blocks share it. Tiles are 64
// positions each and begin with the first visible one: a window of 1,024 positions is 16 tiles, wherever it lies.
struct AttentionShare {
  uint32_t newest;  // the token's own position, counted from the first visible one
  KvRun visible;    // the visible positions in the cache
  uint32_t kv_head, group, split, splits, first, end;
};

__device__ __forceinline__ AttentionShare attention_share(const MegakernelAttention& a, uint32_t position) {
  AttentionShare share;
  share.group = a.shape.H / a.shape.Hkv;
  share.kv_head = blockIdx.x % a.shape.Hkv;
  share.split = blockIdx.x / a.shape.Hkv;
  share.newest = a.shape.window != 0 ? min(position, a.shape.window - 1) : position;
  share.visible = KvRun::ending_at(a.kv, position, share.newest);
  const uint32_t tiles = share.newest / kMegakernelTile + 1;
  share.splits = min(tiles, a.most_splits);
  share.first = share.end = 0;
  if (share.split < share.splits) {
    share.first = tiles * share.split / share.splits;
    share.end = tiles * (share.split + 1) / share.splits;
  }
  return share;
}

// The last visible row of a tile.
__device__ __forceinline__ uint32_t last_row(const AttentionShare& share, uint32_t tile) {
  return min(share.newest - tile * kMegakernelTile, kMegakernelTile - 1);
}
// Whether a share's keys and values come through the ring (megakernel_attention_deep.cuh).
__device__ __forceinline__ bool through_ring(const MegakernelAttention& a, const AttentionShare& share) {
  return a.shape.hd == kMegakernelDeepDims && share.end - share.first >= kMegakernelDeepTiles;
}

// Rows of a task that are copied in one piece where they are not cut: GEGLU's are of two matrices.
__device__ __forceinline__ uint32_t run_rows(const MegakernelProduct& p) {
  return is_geglu(p.output) ? p.task.rows / 2 : p.task.rows;
}

// Where the planes of a product's weights lie in a slot, in bytes.
struct SlotLayout {
  uint32_t high, scales, super;
  uint32_t super_run;  // bytes of the factors of a run
};
__device__ __forceinline__ SlotLayout slot_layout(const MegakernelProduct& p, const PackedBytes& bytes) {
  const uint32_t cells = p.task.rows * p.task.cut_steps;
  SlotLayout at;
  at.high = cells * bytes.quants;
  at.scales = at.high + cells * bytes.high;
  at.super = at.scales + cells * bytes.scales;
  at.super_run = megakernel_super_bytes(p.expert_steps != 0 ? p.task.rows * p.expert_steps
                                        : p.task.cuts > 1   ? p.task.cut_steps
                                                            : run_rows(p) * p.task.cut_steps);
  return at;
}

// What a stage begins with: awaiting and rounding its input, or all of it.
enum class StageStart : uint8_t {
  kNothing,  // no share of attention, or the activations of the stage before
  kResidual,
  kPromptResidual,
  kRoutingResidual,
  kAgain,
  kMixture,
  kVector,
  kEights,
  kAttention256,
  kAttention512,
  kDeepAttention,
  kDeepAttentionOf16,
  kCombine,
  kPerLayerInputs,
  kPerLayerGate,
  kPerLayerProject,
};

// What is to be called in a stage, as one word: a load takes a warp 30 cycles, and so does every branch.
struct StageCall {
  uint32_t bits;
  static constexpr uint32_t kIdle = 1u << 16;  // nothing
  static constexpr uint32_t kTakesFactors = 1u << 17;
  __device__ StageStart start() const { return static_cast<StageStart>(bits & 0xffu); }
  __device__ uint32_t product() const { return bits >> 8 & 0xffu; }  // product_code(), or kNoProduct
  __device__ bool has(uint32_t flags) const { return (bits & flags) != 0; }
};
// The code of a product: its packing, what becomes of its results, and the rows of a task; or two rows that are put
// together from experts. Everything that is not asked while rows are multiplied makes a layer's instructions fewer.
enum RowCode : uint32_t { kOneRow, kTwoRows, kFourRows, kEightRows, kRowCodes };
enum TaskResults : uint32_t { kWordResults, kGegluResults, kOtherResults };
inline constexpr uint32_t kExpertTasks = 3 * static_cast<uint32_t>(kRowCodes), kTaskCodes = kExpertTasks + 1;
__device__ __forceinline__ uint32_t task_code(const MegakernelProduct& p) {
  if (p.expert_steps != 0) return kExpertTasks;
  const TaskResults results = p.output == MegakernelOutput::kVector ? kWordResults
                              : is_geglu(p.output)                  ? kGegluResults
                                                                    : kOtherResults;
  return static_cast<uint32_t>(results) * kRowCodes + (31 - __clz(p.task.rows));
}
inline constexpr uint32_t kNoProduct = 0;
constexpr uint32_t product_code(Packing packing, uint32_t task_code) {
  return 1 + static_cast<uint32_t>(packing) * kTaskCodes + task_code;
}
static_assert(product_code(Packing::kF32, kTaskCodes) <= 256);

// A stage as it lies in shared memory, with this block's part of it and what is to be called: worked out ahead, because
// every decision takes long.
struct WindowStage {
  MegakernelStage stage;
  StageCall call;
  union {
    struct {  // kProduct
      TaskList list;
      SlotLayout layout;
      uint32_t warps;                  // units are dealt out to so many: a power of two
      uint32_t turn_tasks, turn_cuts;  // from a warp's unit to its next: so many tasks and cuts
      uint32_t cuts_inverse;           // 256 / cuts, rounded up: exact for quotients of fewer than 16 units
    };
    AttentionShare share;  // kAttention, kCombine
  };
};

// What is known of every slot. Places are counted through a token; who waits for a barrier of a slot's n-th use must
// know that its use before has begun, or could take the phase before that for the one it waits for (they have the same
// parity). Loaders and warps with tasks overtake one another, so each use is announced.
struct RingState {
  uint64_t full[kMegakernelMaxSlots], empty[kMegakernelMaxSlots];
  uint32_t taken[kMegakernelMaxSlots];  // the place whose use of the slot has begun
};
struct Ring {
  RingState& state;
  uint32_t full, empty;  // barriers, as addresses
  __device__ explicit Ring(RingState& memory)
      : state(memory), full(shared_address(memory.full)), empty(shared_address(memory.empty)) {}
  __device__ void init(uint32_t slots) const {
    for (uint32_t s = 0; s < slots; ++s) {
      mbarrier_init(full + s * 8, 1);
      mbarrier_init(empty + s * 8, kMegakernelWarps);
      state.taken[s] = s - slots;
    }
    fence_mbarrier_init();
  }
  __device__ void wait_until_taken(uint32_t slot, uint32_t place) const {
    const auto* taken = static_cast<const volatile uint32_t*>(state.taken + slot);
    while (read_again(taken) != place) {
    }
  }
};

// A place in the ring; the parity tells apart the rounds of its barriers.
struct RingPlace {
  uint32_t index = 0, slot = 0, parity = 0;
  __device__ void advance(uint32_t slots) {
    ++index;
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
};
// Place `index`; `inverse`: 2^32 / slots, rounded up.
__device__ __forceinline__ RingPlace place_at(uint32_t index, uint32_t slots, uint32_t inverse) {
  const uint32_t rounds = __umulhi(index, inverse);
  return {index, index - rounds * slots, rounds & 1};
}

// A warp that loads. All of its lanes call everything. Slots stand empty for as long as it takes to fill the one
// before, so whatever is the same for the next slot stays in registers.
template <MegakernelBuild kBuild>
class WeightLoader {
 public:
  // `loader`: its number. Slots loader, loader + memory.loaders, ... are its own.
  __device__ WeightLoader(uint32_t slots_at, const Ring& ring, const MegakernelMemory& memory,
                          const uint32_t* expert_ids, uint32_t loader)
      : own_{loader, loader, 0},
        loader_(loader),
        slots_at_(slots_at),
        full_(ring.full),
        empty_(ring.empty),
        taken_(shared_address(ring.state.taken)),
        memory_(memory),
        expert_ids_(expert_ids),
        policy_(read_once_policy()),
        lane_(threadIdx.x % 32) {}

  // Stages [0, job.stage_count) one after the other. `descriptions`: two stages of this warp's own. `routed`: counted
  // up to a stage's number once its experts are chosen.
  // `begun`: the number of the stage that the others have begun.
  __device__ void run(const MegakernelJob& job, MegakernelStage* descriptions, const volatile uint32_t* routed,
                      const uint32_t* begun, uint32_t position, uint32_t sequence) {
    begun_ = shared_address(begun);
    uint4 words = fetch(job, 0);
    for (uint32_t index = 0; index < job.stage_count; ++index) {
      MegakernelStage& stage = descriptions[index % 2];
      if (lane_ < sizeof(MegakernelStage) / 16) reinterpret_cast<uint4*>(&stage)[lane_] = words;
      __syncwarp();
      words = fetch(job, index + 1);
      if (stage.kind == MegakernelKind::kAttention) {
        const AttentionShare share = attention_share(stage.attention, position);
        if (!through_ring(stage.attention, share)) continue;
        if (!stage.attention.owns) wait_for_writer(stage.attention);
        number_ = stage.number, hurries_ = false;
        load_cache(stage.attention, share, sequence);
      }
      if (stage.kind != MegakernelKind::kProduct) continue;
      if constexpr (kBuild.experts) {
        if (stage.product.expert_rows != 0) {
          while (*routed < stage.number) __nanosleep(20);
          __threadfence_block();
          __syncwarp();
        }
      }
      number_ = stage.number, hurries_ = false;
      load(stage.product);
    }
  }

 private:
  __device__ uint4 fetch(const MegakernelJob& job, uint32_t index) const {
    static_assert(sizeof(MegakernelStage) % 16 == 0 && sizeof(MegakernelStage) <= 32 * 16);
    if (index >= job.stage_count || lane_ >= sizeof(MegakernelStage) / 16) return make_uint4(0, 0, 0, 0);
    return reinterpret_cast<const uint4*>(job.stages + index)[lane_];
  }

  // Waits until the slot of this warp's next place is free. Nobody else has filled it before. most_under_way: slots.
  __device__ __forceinline__ void take_slot(uint32_t most_under_way) {
    mbarrier_wait(empty_ + own_.slot * 8, own_.parity ^ 1);
    hold_back(most_under_way);
    __syncwarp();
    if (lane_ == 0) write_shared(taken_ + own_.slot * 4, own_.index);
  }
  // Copies under way delay what the blocks exchange meanwhile, and one another: a few slots keep the memory busy.
  // Weights of a stage that has not begun can wait in any case.
  __device__ __forceinline__ void hold_back(uint32_t most_under_way) {
    while (!hurries_) {
      const uint32_t limit = read_shared(begun_) < number_ ? kMegakernelSlotsAhead : most_under_way;
      hurries_ = limit >= memory_.slots;
      if (hurries_ || own_.index < limit) return;
      const bool wraps = own_.slot < limit;
      const uint32_t slot = own_.slot - limit + (wraps ? memory_.slots : 0), parity = own_.parity ^ (wraps ? 1 : 0);
      // A slot that is in use again has been full.
      if (read_shared(taken_ + slot * 4) != own_.index - limit || mbarrier_try_wait(full_ + slot * 8, parity)) return;
    }
  }
  // All lanes have begun their copies to it. Goes on to this warp's next place, which is so many further.
  __device__ __forceinline__ uint32_t slot_is_under_way() {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(full_ + own_.slot * 8);
    uint32_t places = memory_.loaders;
    own_.slot += places;
    if (own_.slot >= memory_.slots) {
      places += loader_ + memory_.slots - own_.slot;
      own_.slot = loader_;
      own_.parity ^= 1;
    }
    own_.index += places;
    return places;
  }

  // Another layer's attention wrote the token's own key and value, on another SM. Two stages later their results make
  // the output product, the stage after that takes all of its rows: once the next has begun, they are there.
  __device__ void wait_for_writer(const MegakernelAttention& a) const {
    while (read_shared(begun_) < a.kv_stage + 4) {
    }
    __threadfence();
    fence_proxy_async_global();
    __syncwarp();
  }

  // This block's share of a long attention stage, tile after tile: keys, then values. A lane copies a row.
  __device__ void load_cache(const MegakernelAttention& a, const AttentionShare& share, uint32_t sequence) {
    constexpr uint32_t hd = kMegakernelDeepDims;
    const uint32_t slot_keys = 1u << a.slot_shift;
    const KvRows<__half> rows = kv_halves(a.kv, KvHead(a.shape, sequence, share.kv_head), hd);
#pragma unroll 1
    for (uint32_t tile = share.first; tile < share.end; ++tile) {
      const uint32_t last = last_row(share, tile);
#pragma unroll 1
      for (uint32_t kind = 0; kind < 2; ++kind) {
#pragma unroll 1
        for (uint32_t chunk = 0; chunk <= last >> a.slot_shift; ++chunk) {
          if (next_++ != own_.index) continue;
          take_slot(memory_.slots);  // nothing else is copied or exchanged until this stage is done with them
          const uint32_t row = chunk * slot_keys + lane_;
          if (lane_ < slot_keys && row <= last) {
            copy_cache_row(rows.row(kind == 1, share.visible, tile * kMegakernelTile + row));
          }
          slot_is_under_way();
        }
      }
    }
  }

  __device__ void copy_cache_row(const __half* from) const {
    constexpr uint32_t hd = kMegakernelDeepDims;
    const uint32_t barrier = full_ + own_.slot * 8;
    const uint32_t destination = slots_at_ + own_.slot * memory_.slot_bytes + lane_ * megakernel_cache_row(hd);
    mbarrier_expect_tx(barrier, hd * 2);
    cp_async_bulk(destination, from, hd * 2, barrier);
  }

  // A lane copies the same plane of the same run of every slot. What it needs for that is worked out once a product:
  // one warp alone waits for every instruction, and has a slot to fill every few hundred cycles.
  __device__ void load(const MegakernelProduct& p) {
    const TaskList list = task_list(p);
    const PackedBytes bytes = packed_bytes_in<kBuild.packings | kBuild.per_layer>(p.packing);
    const SlotLayout layout = slot_layout(p, bytes);
    const bool in_turn = kBuild.experts && p.expert_steps != 0, cut = p.task.cuts > 1 && !in_turn;
    const uint32_t planes = 1 + (bytes.high != 0) + (bytes.scales != 0) + (bytes.super != 0);
    const uint32_t together = cut ? 1 : run_rows(p);  // rows of a run
    const uint32_t runs = in_turn ? p.task.cut_steps / p.expert_steps : p.task.rows / together;
    const uint32_t run = lane_ % runs, which = lane_ / runs;
    const uint32_t plane = which == 0   ? 0
                           : which == 1 ? (bytes.high != 0 ? 1 : 2)
                           : which == 2 ? (bytes.high != 0 ? 2 : 3)
                                        : 3;
    cell_bytes_ = plane == 0 ? bytes.quants : plane == 1 ? bytes.high : plane == 2 ? bytes.scales : bytes.super;
    const uint32_t run_cells = in_turn ? p.task.rows * p.expert_steps : together * p.task.cut_steps;
    to_ = plane == 0 ? 0 : plane == 1 ? layout.high : plane == 2 ? layout.scales : layout.super;
    to_ += run * (plane == 3 ? layout.super_run : run_cells * cell_bytes_);
    const uint32_t cuts = p.task.cuts, cut_steps = p.task.cut_steps, steps = p.steps;
    // Cut c of task `task` is this warp's next place.
    const uint32_t skipped = own_.index - next_;
    next_ += list.count * cuts;
    uint32_t task = skipped / cuts, c = skipped - task * cuts;
    Source source{};
    for (task += list.first; next_ > own_.index;) {
      if (task >= source.until) source = find(p, task, in_turn, run * together, plane);
      take_slot(memory_.under_way);
      if (which < planes) {
        if (!in_turn) {
          copy(source.at(task) + c * cut_steps * cell_bytes_,
               cut ? min(cut_steps, steps - c * cut_steps) * cell_bytes_ : run_cells * cell_bytes_);
        } else if ((c * runs + run) * p.expert_steps < steps) {
          const uint64_t row = static_cast<uint64_t>(expert_ids_[c * runs + run]) * p.expert_stride[0];
          copy(source.at(task) + row * p.expert_steps * cell_bytes_, run_cells * cell_bytes_);
        }
      }
      const uint32_t places = slot_is_under_way();
      if (cuts == 1) {
        task += places;
      } else {
        for (c += places; c >= cuts; c -= cuts) ++task;
      }
    }
  }

  // Where a lane's run of task `first` begins, and those of the tasks after it up to `until`: in the same matrix and
  // expert.
  struct Source {
    const char* from = nullptr;
    uint32_t first = 0, stride = 0, until = 0;
    __device__ const char* at(uint32_t task) const { return from + static_cast<uint64_t>(task - first) * stride; }
  };
  // `within`: the run's first row in the task.
  __device__ Source find(const MegakernelProduct& p, uint32_t task, bool in_turn, uint32_t within,
                         uint32_t plane) const {
    const uint32_t rows = run_rows(p);
    uint32_t part = 0, row = task * rows, until = 0xffffffffu, row_steps = p.steps;
    if (in_turn) {
      row_steps = p.expert_steps;
    } else if (is_geglu(p.output)) {
      part = within >= rows ? 1 : 0;
      if (kBuild.experts && p.expert_rows != 0) {
        const uint32_t expert = row / p.expert_rows;
        until = (expert + 1) * (p.expert_rows / rows);
        row += expert_ids_[expert] * p.expert_stride[part] + p.expert_offset[part] - expert * p.expert_rows;
      }
      row += within - part * rows;
    } else {
      part = row < p.part_end[0] ? 0 : row < p.part_end[1] ? 1 : 2;
      if (part + 1 < p.parts) until = p.part_end[part] / rows;
      if (part != 0) row -= p.part_end[part - 1];
      row += within;
    }
    const void* base = reinterpret_cast<const void* const*>(&p.planes[part])[plane];
    return {static_cast<const char*>(base) + static_cast<uint64_t>(row) * row_steps * cell_bytes_, task,
            rows * row_steps * cell_bytes_, until};
  }

  __device__ void copy(const char* from, uint32_t bytes) const {
    if (cell_bytes_ == 2) {
      const auto at = reinterpret_cast<uint64_t>(from);
      bytes = static_cast<uint32_t>(((at + bytes + 15) & ~uint64_t{15}) - (at & ~uint64_t{15}));
      from = reinterpret_cast<const char*>(at & ~uint64_t{15});
    }
    const uint32_t barrier = full_ + own_.slot * 8;
    const uint32_t destination = slots_at_ + own_.slot * memory_.slot_bytes + to_;
    mbarrier_expect_tx(barrier, bytes);
    cp_async_bulk(destination, from, bytes, barrier, policy_);
  }

  uint32_t next_ = 0;     // places begun by the products and caches so far
  RingPlace own_;         // the next of them that is this warp's
  uint32_t number_ = 0;   // of the stage it loads for
  bool hurries_ = false;  // that stage waits for its weights, and as many may be under way as there are slots
  uint32_t loader_;
  uint32_t slots_at_, full_, empty_, taken_, begun_ = 0;
  MegakernelMemory memory_;
  const uint32_t* expert_ids_;
  uint64_t policy_;
  uint32_t lane_;
  // Of this lane's plane of the product, and where its run lies in a slot.
  uint32_t cell_bytes_ = 0, to_ = 0;
};

}  // namespace carat::cuda
