#pragma once

// Device code: the weights on their way to a lane of the token kernel.
//
// A half-warp (16 lanes) multiplies a row group (four rows) with a segment (512 columns): a lane takes one block of 32
// columns of each row. What it needs for that arrives in units of 16 bytes a row, copied to shared memory in the
// background, kDepth units ahead:
//   kQ4, kQ4K  one unit: quants
//   kQ8        two units: columns 0..15 and 16..31 of the block
//   kQ5K, kQ6K two units: quants, then the high bits
//   kF16/kBF16 four units, kF32 eight: unit u of lane l is piece 16 u + l of the segment's row
// Scales come with the first unit: of the eight lanes that share a step, lane r fetches those of row r.
//
// Slot of a unit: quants [4 rows][512 lanes] x 16 bytes, scales [64 steps][4 rows] x 16 bytes.
#include "exec/cuda/kernels/attention_mma.cuh"
#include "exec/cuda/kernels/token.h"

namespace carat::cuda {

inline constexpr uint32_t kRingRowBytes = kTokenThreads * 16;
inline constexpr uint32_t kRingScales = kTokenRows * kRingRowBytes;
inline constexpr uint32_t kRingSlotBytes = kRingScales + kTokenThreads / 8 * kTokenRows * 16;
inline constexpr uint32_t kHalfWarps = kTokenThreads / 16;

__device__ __forceinline__ uint32_t units_of(Packing packing) {
  switch (packing) {
    case Packing::kQ4:
    case Packing::kQ4K:
      return 1;
    case Packing::kF16:
    case Packing::kBF16:
      return 4;
    case Packing::kF32:
      return 8;
    default:
      return 2;
  }
}

// Weights are read once per token: they must not push the small vectors that every token reads out of the L2 cache.
__device__ __forceinline__ uint64_t read_once_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// Copies `bytes` (0 or kBytes) to shared memory in the background; what is missing becomes zero.
template <int kBytes>
__device__ __forceinline__ void copy_once(uint32_t destination, const void* source, uint32_t bytes, uint64_t policy) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(destination), "l"(source),
                 "r"(bytes), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3, %4;" ::"r"(destination), "l"(source),
                 "n"(kBytes), "r"(bytes), "l"(policy)
                 : "memory");
  }
}

// What a block has to do of a product: its row groups, each cut into `slices` tasks. Half-warp h takes the tasks
// h, h + 32, ...; a task is at most `segments` segments long.
struct TaskList {
  uint32_t first_group, groups, tasks, segments_of_row, segments;
};

__device__ __forceinline__ TaskList task_list(const TokenProduct& p) {
  TaskList list;
  list.first_group = p.groups * blockIdx.x / gridDim.x;
  list.groups = p.groups * (blockIdx.x + 1) / gridDim.x - list.first_group;
  list.tasks = list.groups * p.slices;
  list.segments_of_row = (p.steps + 1) / 2;
  list.segments = (list.segments_of_row + p.slices - 1) / p.slices;
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

// A stage as it lies in shared memory, with this block's part of it: worked out ahead, because divisions take long.
struct WindowStage {
  TokenStage stage;
  union {
    TaskList list;         // kProduct
    AttentionShare share;  // kAttention, kCombine
  };
};

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

template <int kDepth>
class WeightRing {
 public:
  __device__ WeightRing(unsigned char* memory, const WindowStage* window, const uint32_t* expert_ids)
      : memory_(memory),
        shared_(shared_address(memory)),
        window_(window),
        expert_ids_(expert_ids),
        policy_(read_once_policy()) {}

  // Stages before this one are described, and what chooses their weights is known.
  __device__ void allow(uint32_t stages) { allowed_ = stages; }

  // Keeps kDepth units in flight, as far as stages are allowed.
  __device__ void top_up() {
    while (ahead_ < kDepth && (units_left_ > 0 || enter_next())) {
      issue();
      copy_async_commit();
      slot_ = slot_ + 1 == kDepth ? 0 : slot_ + 1;
      ++ahead_;
    }
  }

  // Waits for the oldest unit, or the oldest two; they are at slot(0), slot(1).
  __device__ void wait(bool two) {
    if (ahead_ < kDepth) {
      copy_async_wait<0>();
    } else if (two) {
      copy_async_wait<kDepth - 2>();
    } else {
      copy_async_wait<kDepth - 1>();
    }
    __syncwarp();
  }
  __device__ const unsigned char* slot(uint32_t unit) const {
    uint32_t index = oldest_ + unit;
    if (index >= kDepth) index -= kDepth;
    return memory_ + index * kRingSlotBytes;
  }
  __device__ void release(uint32_t units) {
    __syncwarp();  // lanes read scales that other lanes fetched
    oldest_ += units;
    if (oldest_ >= kDepth) oldest_ -= kDepth;
    ahead_ -= units;
  }

 private:
  __device__ const TokenProduct& product() const { return window_[stage_ % kTokenWindow].stage.product; }

  // Finds the next task of this warp; false where the list ends or is not known yet. The same for all lanes.
  __device__ bool enter_next() {
    while (stage_ < allowed_) {
      const WindowStage& next = window_[stage_ % kTokenWindow];
      const uint32_t half = threadIdx.x / 16, first = (half & ~1u) + kHalfWarps * round_;
      if (next.stage.kind == TokenKind::kProduct && first < next.list.tasks) {
        enter(next.stage.product, next.list, first + (half & 1));
        ++round_;
        return true;
      }
      ++stage_;
      round_ = 0;
    }
    return false;
  }

  __device__ void enter(const TokenProduct& p, const TaskList& list, uint32_t task) {
    const bool valid = task < list.tasks;
    const uint32_t safe = valid ? task : 0, group = quotient(safe, p.slice_inverse), lane8 = threadIdx.x % 8;
    const uint32_t slice = safe - group * p.slices;
    const GroupCells at = locate_group(p, list.first_group + group, expert_ids_);
    const uint32_t begin = quotient(list.segments_of_row * slice, p.slice_inverse);
    const uint32_t end = quotient(list.segments_of_row * (slice + 1), p.slice_inverse);
    packing_ = p.packing;
    units_per_segment_ = units_of(p.packing);
    units_left_ = list.segments * units_per_segment_;
    unit_ = 0;
    const bool floats = is_float_packing(p.packing);
    cell_bytes_ = p.packing == Packing::kQ8 ? 256 : p.packing == Packing::kF32 ? 1024 : floats ? 512 : 128;
    experts_in_turn_ = p.expert_steps != 0;
    row_cells_ = experts_in_turn_ ? p.expert_steps : p.steps;
    // Floats: lane l takes piece l of 16; quantised: lane l of eight takes block l of its step.
    const uint32_t lane_offset = (floats ? threadIdx.x % 16 : lane8) * 16;
    first_quants_ = static_cast<const char*>(p.planes[at.part].quants) + lane_offset;
    second_quants_ = static_cast<const char*>(p.planes[at.second_part].quants) + lane_offset;
    scales_ = static_cast<const char*>(p.planes[lane8 < 2 ? at.part : at.second_part].scales);
    step_ = 2 * begin + (floats ? 0 : threadIdx.x / 8 % 2);
    step_end_ = valid ? min(2 * end, p.steps) : 0;
    first_cell_ = static_cast<uint32_t>(at.first);
    second_cell_ = static_cast<uint32_t>(at.second);
  }

  // Copies the next unit and moves on.
  __device__ void issue() {
    const uint32_t to = shared_ + slot_ * kRingSlotBytes, to_lane = to + threadIdx.x * 16, unit = unit_;
    uint32_t first = first_cell_ + step_, second = second_cell_ + step_;
    uint32_t bytes = step_ < step_end_ ? 16 : 0;
    if (experts_in_turn_ && bytes != 0) {
      // The experts' rows one after the other: `step_` runs through all of them.
      const TokenProduct& p = product();
      const uint32_t used = step_ / p.expert_steps;
      const uint32_t cells = expert_ids_[used] * p.expert_stride[0] * p.expert_steps - used * p.expert_steps;
      first += cells;
      second += cells;
    }
    if (bytes == 0) first = second = 0;
    if (is_float_packing(packing_)) {
      issue_floats(unit, first, second, to_lane);
    } else if (unit == 0 || packing_ == Packing::kQ8) {
      const uint32_t half = unit * 128;
      const auto copy = [&](uint32_t row, const char* quants, uint32_t cell) {
        copy_once<16>(to_lane + row * kRingRowBytes, quants + static_cast<uint64_t>(cell) * cell_bytes_ + half, bytes,
                      policy_);
      };
      const uint32_t next = bytes == 0 ? 0 : row_cells_;
      copy(0, first_quants_, first);
      copy(1, first_quants_, first + next);
      copy(2, second_quants_, second);
      copy(3, second_quants_, second + next);
      const uint32_t lane8 = threadIdx.x % 8;
      if (unit == 0 && lane8 < kTokenRows) {
        const uint32_t cell = (lane8 < 2 ? first : second) + (lane8 & 1) * next;
        copy_once<16>(to + kRingScales + (threadIdx.x / 8 * kTokenRows + lane8) * 16,
                      scales_ + static_cast<uint64_t>(cell) * 16, bytes, policy_);
      }
    } else {
      issue_high(first, second, bytes, to, to_lane);
    }
    --units_left_;
    if (++unit_ == units_per_segment_) {
      unit_ = 0;
      step_ += 2;
    }
  }

  // The high bits of Q5_K and Q6_K.
  __device__ void issue_high(uint32_t first, uint32_t second, uint32_t bytes, uint32_t to, uint32_t to_lane) {
    const TokenProduct& p = product();
    const uint32_t lane8 = threadIdx.x % 8, next = bytes == 0 ? 0 : row_cells_;
    const bool geglu = p.output == TokenOutput::kGeglu;
    const uint32_t part = first_part(p);
#pragma unroll
    for (uint32_t r = 0; r < kTokenRows; ++r) {
      const auto* high = static_cast<const char*>(p.planes[geglu ? r / 2 : part].high);
      const uint64_t block = static_cast<uint64_t>((r < 2 ? first : second) + (r & 1) * next) * 8 + lane8;
      if (packing_ == Packing::kQ5K) {
        copy_once<4>(to_lane + r * kRingRowBytes, high + block * 4, min(bytes, 4u), policy_);
      } else {
        copy_once<8>(to_lane + r * kRingRowBytes, high + block * 8, min(bytes, 8u), policy_);
      }
    }
    if (packing_ == Packing::kQ6K && lane8 < kTokenRows) {
      // Two bytes are wanted and four are the least that can be copied: the reader takes the right half.
      const uint64_t cell = (lane8 < 2 ? first : second) + (lane8 & 1) * next;
      const auto* super = static_cast<const char*>(p.planes[geglu ? lane8 / 2 : part].super);
      copy_once<4>(to + kRingScales + (threadIdx.x / 8 * kTokenRows + lane8) * 16, super + (cell * 2 & ~3ull),
                   min(bytes, 4u), policy_);
    }
  }
  // Which matrix the rows of this task are in.
  __device__ uint32_t first_part(const TokenProduct& p) const {
    for (uint32_t i = 0; i + 1 < p.parts; ++i) {
      if (first_quants_ - threadIdx.x % 8 * 16 == p.planes[i].quants) return i;
    }
    return p.parts - 1;
  }

  __device__ void issue_floats(uint32_t unit, uint32_t first, uint32_t second, uint32_t to_lane) {
    // Piece 16 unit + lane of the segment's row; the last segment may be a step short.
    const uint32_t offset = unit * 256;
    const uint32_t bytes = step_ + (offset + threadIdx.x % 16 * 16) / cell_bytes_ < step_end_ ? 16 : 0;
    const uint32_t next = bytes == 0 ? 0 : row_cells_;
    const auto copy = [&](uint32_t row, const char* quants, uint32_t cell) {
      copy_once<16>(to_lane + row * kRingRowBytes,
                    quants + (bytes == 0 ? 0 : static_cast<uint64_t>(cell) * cell_bytes_ + offset), bytes, policy_);
    };
    copy(0, first_quants_, first);
    copy(1, first_quants_, first + next);
    copy(2, second_quants_, second);
    copy(3, second_quants_, second + next);
  }

  unsigned char* memory_;
  uint32_t shared_;  // the same as an address
  const WindowStage* window_;
  const uint32_t* expert_ids_;
  uint64_t policy_;
  // The task the next copy belongs to.
  uint32_t stage_ = 0, round_ = 0;
  uint32_t units_left_ = 0, unit_ = 0, units_per_segment_ = 0;
  uint32_t step_ = 0, step_end_ = 0;  // of this lane
  uint32_t first_cell_ = 0, second_cell_ = 0, row_cells_ = 0, cell_bytes_ = 0;
  Packing packing_ = Packing::kQ8;
  bool experts_in_turn_ = false;
  const char *first_quants_ = nullptr, *second_quants_ = nullptr, *scales_ = nullptr;
  uint32_t allowed_ = 0;
  uint32_t slot_ = 0, oldest_ = 0, ahead_ = 0;
};

}  // namespace carat::cuda
