#include "exec/cuda/kernels/megakernel/megakernel_shape.h"

#include <algorithm>
#include <vector>

#include "exec/cuda/kernels/gemv/activation.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kLeastSlots = 4;  // fewer would not keep the memory busy
constexpr uint32_t kSmallestSlot = 8704, kLargestSlot = 24 * 1024, kSlotStride = 128;
static_assert(kSmallestSlot >= 8 * megakernel_cache_row(kMegakernelDeepDims));

uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

uint32_t activation_bytes(Packing packing, uint32_t steps) {
  return steps * (is_float_packing(packing) ? kStep * 4 : kStepWords * 4 + kStepBlocks * uint32_t{sizeof(BlockMeta)});
}

// What `steps` steps of `rows` rows take in a slot.
uint32_t slot_use(const MegakernelWeights& weights, uint32_t rows, uint32_t steps) {
  const PackedBytes bytes = packed_bytes(weights.packing);
  const uint32_t use = rows * steps * (bytes.quants + bytes.high + bytes.scales);
  if (bytes.super == 0) return use;
  if (weights.piece_steps != weights.steps) {
    return use + divide_up(steps, weights.piece_steps) * megakernel_super_bytes(rows * weights.piece_steps);
  }
  return use + rows * megakernel_super_bytes(steps);
}

// Rows that a task may have: one of either matrix at least where the results are of two.
bool possible(const MegakernelWeights& weights, uint32_t rows) {
  if (weights.piece_steps != weights.steps) return rows == 2;  // what the kernel is compiled for
  return rows > 0 && weights.rows % rows == 0 && (weights.run == 1 || rows >= 2);
}

// Rows of a task that is cut, at most. Four of 4 bits made a token of E4B 1 (Q4_0) to 4% (Q4_K_M) longer.
uint32_t cut_rows(Packing packing) { return packing == Packing::kQ8 ? kMegakernelCutRows : kMegakernelCutRows / 2; }

double weight_bytes(const MegakernelWeights& weights) {
  return double(weights.rows) * weights.steps * packed_bytes(weights.packing).total();
}

// Products that a block has few bytes of are in the ring in time however they lie there.
bool is_long(const MegakernelWeights& weights, uint32_t blocks) {
  return weight_bytes(weights) >= 64.0 * 1024 * blocks;
}

// Time of a product in a block, in cycles. Warps take tasks, or cuts of them, in turn; many of them are bound by what
// they issue and by shared memory, a few by what each waits for. Measured on an H200. Of long products, those that use
// their slots well are preferred; of all, those that pass through few. Sums of cuts are put together.
double task_cost(const MegakernelWeights& weights, const MegakernelTasks& tasks, uint32_t slot_bytes, uint32_t blocks,
                 uint32_t slot_cycles) {
  const bool four_bits =
      megakernel_lane_steps(weights.packing) == 4;  // or five or six: 32 columns of a lane instead of 16
  const uint32_t units = megakernel_share(weights, tasks.rows, blocks) * tasks.cuts;
  const double turns = divide_up(tasks.cut_steps, megakernel_lane_steps(weights.packing));
  const double issued =
      (150.0 + turns * (36.0 + tasks.rows * (four_bits ? 51.0 : 21.0))) * std::min(units, kMegakernelWarps) / 4.0;
  const double joined = tasks.cuts > 1 ? 350.0 : 0.0;
  const double waited = 300.0 + joined + turns * (60.0 + tasks.rows * (four_bits ? 150.0 : 68.0));
  const double rounds = units <= kMegakernelWarps ? 1.0 : 0.5 + double(units) / kMegakernelWarps;
  const double unused = 1.0 - double(slot_use(weights, tasks.rows, tasks.cut_steps)) / slot_bytes;
  return rounds * std::max(issued, waited) * (is_long(weights, blocks) ? 1.0 + 0.3 * unused : 1.0) +
         double(slot_cycles) * units;
}

// Layers repeat one another: each kind of product once, and how many there are of it.
struct ProductKinds {
  std::vector<MegakernelWeights> weights;
  std::vector<uint32_t> counts;
  explicit ProductKinds(std::span<const MegakernelWeights> products) {
    for (const MegakernelWeights& product : products) {
      const auto known = std::find(weights.begin(), weights.end(), product);
      if (known != weights.end()) {
        ++counts[static_cast<size_t>(known - weights.begin())];
      } else {
        weights.push_back(product);
        counts.push_back(1);
      }
    }
  }
};

// Share of the ring's bytes that hold weights while long products are under way.
double filling(const ProductKinds& products, uint32_t slot_bytes, uint32_t blocks, uint32_t slot_cycles) {
  double all = 0.0, slots = 0.0;
  for (size_t i = 0; i < products.weights.size(); ++i) {
    const MegakernelWeights& weights = products.weights[i];
    if (!is_long(weights, blocks) && products.weights.size() > 1) continue;
    const MegakernelTasks tasks = megakernel_tasks(weights, slot_bytes, blocks, slot_cycles);
    all += weight_bytes(weights) * products.counts[i];
    slots += double(weights.rows) / tasks.rows * tasks.cuts * products.counts[i];
  }
  return slots == 0.0 ? 1.0 : all / (slots * slot_bytes);
}

bool has_experts(std::span<const MegakernelWeights> products) {
  return std::any_of(products.begin(), products.end(),
                     [](const MegakernelWeights& weights) { return weights.piece_steps != weights.steps; });
}

// Layers whose weights take little time compared with what their stages wait for one another.
bool short_layers(std::span<const MegakernelWeights> products, uint32_t blocks) {
  constexpr double kLongest = 450.0 * 1024;  // of the gate and up products of a block
  return std::all_of(products.begin(), products.end(), [&](const MegakernelWeights& weights) {
    return weights.run == 1 || weight_bytes(weights) < kLongest * blocks;
  });
}

// Where two warps copy (choose_warps).
bool few_warps_copy(std::span<const MegakernelWeights> products, uint32_t blocks) {
  return !has_experts(products) && short_layers(products, blocks);
}

// How many warps fill the ring and empty it, and how many copies are under way. All of it measured on an H200.
// In short layers it is the slowest copy that counts, not how much is copied together: two warps, and three slots of
// four bits, whose products take longer, or eight of others. Long layers want three warps and some 64 KB. Experts
// cannot be loaded before they are chosen, so they are in a hurry.
void choose_warps(std::span<const MegakernelWeights> products, uint32_t blocks, MegakernelMemory& memory) {
  constexpr uint32_t kSlotsForAllWarps = 12;  // with fewer, some would only wait for slots
  constexpr uint32_t kBytesUnderWay = 64 * 1024;
  if (has_experts(products)) return;
  if (memory.slots < kSlotsForAllWarps) memory.warps = kMegakernelWarps / 2;
  if (!few_warps_copy(products, blocks)) {
    memory.under_way = kBytesUnderWay / memory.slot_bytes;
    return;
  }
  memory.loaders = 2;
  const bool four_bits = std::all_of(products.begin(), products.end(), [](const MegakernelWeights& weights) {
    return weights.run == 1 || megakernel_lane_steps(weights.packing) == 4;
  });
  memory.under_way = four_bits ? 3 : 8;
}

// Whether no warp gets so far ahead of another that its results take the room of those that wait.
bool stays_together(std::span<const MegakernelWeights> products, uint32_t blocks, uint32_t slot_cycles,
                    const MegakernelMemory& memory) {
  const uint32_t lead = megakernel_lead(memory.slots, memory.loaders, memory.warps);
  const uint32_t geglu_lead = megakernel_lead(memory.slots, memory.loaders, memory.geglu_warps);
  return std::all_of(products.begin(), products.end(), [&](const MegakernelWeights& weights) {
    const MegakernelTasks tasks = megakernel_tasks(weights, memory.slot_bytes, blocks, slot_cycles);
    const uint32_t last = megakernel_share(weights, tasks.rows, blocks) * tasks.cuts - 1;
    return std::min(last, weights.run == 1 ? lead : geglu_lead) <= megakernel_room(weights, tasks);
  });
}

}  // namespace

uint32_t megakernel_room(const MegakernelWeights& weights, const MegakernelTasks& tasks) {
  uint32_t room = kMegakernelNeverHeldUp;
  if (weights.run == 2 * kMegakernelEight) {
    const uint32_t eight = 2 * kMegakernelEight / tasks.rows * tasks.cuts;
    room = (kMegakernelPendingEights - 1) * eight;  // from the last unit of one to the first of the next in its place
  }
  // A sum is kept until the task's last is there, which may be any of its cuts.
  if (tasks.cuts > 1) {
    room = std::min({room, kMegakernelPendingUnits - tasks.cuts, (kMegakernelPendingTasks - 1) * tasks.cuts});
  }
  return room;
}

uint32_t megakernel_lead(uint32_t slots, uint32_t loaders, uint32_t warps) {
  // Who gets this far is never held up: every warp and every slot has had its turn several times.
  const uint32_t far = 16 * (slots + warps);
  uint32_t most = 0;
  for (uint32_t first = 0; first < slots; ++first) {
    // Unit 0, in slot `first`, is multiplied, but its sums are not put anywhere. Which units after it can be done?
    std::vector<bool> stuck(far), warp_stuck(warps), loader_stuck(loaders);
    warp_stuck[0] = true;
    for (uint32_t unit = 1; unit < far; ++unit) {
      const uint32_t loader = (first + unit) % slots % loaders;
      if (unit > slots && stuck[unit - slots]) loader_stuck[loader] = true;
      if (loader_stuck[loader]) warp_stuck[unit % warps] = true;
      stuck[unit] = warp_stuck[unit % warps];
      if (!stuck[unit]) most = std::max(most, unit);
    }
  }
  return most < far - slots - warps ? most : kMegakernelNeverHeldUp;
}

uint32_t megakernel_share(const MegakernelWeights& weights, uint32_t task_rows, uint32_t blocks) {
  const uint32_t hand = std::max(weights.run, task_rows);
  return divide_up(divide_up(weights.rows, hand), blocks) * (hand / task_rows);
}

MegakernelTasks megakernel_tasks(const MegakernelWeights& weights, uint32_t slot_bytes, uint32_t blocks,
                                 uint32_t slot_cycles) {
  MegakernelTasks tasks{};
  double least = 0.0;
  for (uint32_t rows = kMegakernelMostRows; rows > 0; rows /= 2) {
    if (!possible(weights, rows)) continue;
    // Cuts of equal length, at whole experts or at what a warp takes at a time.
    const uint32_t unit =
        weights.piece_steps != weights.steps ? weights.piece_steps : megakernel_lane_steps(weights.packing);
    const uint32_t units = divide_up(weights.steps, unit);
    uint32_t cuts = 1;
    while (cuts < units &&
           slot_use(weights, rows, std::min(weights.steps, divide_up(units, cuts) * unit)) > slot_bytes) {
      ++cuts;
    }
    const uint32_t cut_steps = std::min(weights.steps, divide_up(units, cuts) * unit);
    if (slot_use(weights, rows, cut_steps) > slot_bytes && possible(weights, rows / 2)) continue;
    if (rows > cut_rows(weights.packing) && cuts > 1) continue;
    // A block without a task would not be waited for by those who write what it reads.
    if (weights.rows / rows < blocks && possible(weights, rows / 2)) continue;
    const MegakernelTasks candidate{rows, divide_up(weights.steps, cut_steps), cut_steps};
    const double cost = task_cost(weights, candidate, slot_bytes, blocks, slot_cycles);
    if (tasks.rows != 0 && cost >= least) continue;
    least = cost;
    tasks = candidate;
  }
  return tasks;
}

bool megakernel_fits(const MegakernelWeights& weights, uint32_t rows, uint32_t slot_bytes) {
  return weights.rows % rows == 0 && slot_use(weights, rows, weights.steps) <= slot_bytes;
}

// Where two warps copy, a short product waits for them as often as it has slots.
uint32_t megakernel_slot_cycles(std::span<const MegakernelWeights> products, uint32_t blocks) {
  return few_warps_copy(products, blocks) ? 100 : 0;
}

MegakernelMemory megakernel_memory(std::span<const MegakernelWeights> products, uint32_t d, uint32_t blocks,
                                   uint32_t shared_memory) {
  const ProductKinds kinds(products);
  const uint32_t slot_cycles = megakernel_slot_cycles(kinds.weights, blocks);
  MegakernelMemory best;
  double most = 0.0;
  for (uint32_t slot = kSmallestSlot; slot <= kLargestSlot; slot += kSlotStride) {
    MegakernelMemory memory;
    memory.slot_bytes = slot;
    memory.region_bytes = megakernel_attention_bytes();
    bool fits = true;
    for (const MegakernelWeights& weights : kinds.weights) {
      const MegakernelTasks tasks = megakernel_tasks(weights, slot, blocks, slot_cycles);
      memory.region_bytes = std::max(memory.region_bytes, activation_bytes(weights.packing, weights.steps));
      fits = fits && slot_use(weights, tasks.rows, tasks.cut_steps) <= slot && tasks.cuts <= kMegakernelMostCuts;
    }
    memory.region_bytes = divide_up(memory.region_bytes, 128) * 128;
    const uint32_t others = memory.total(d);
    if (!fits || others >= shared_memory) continue;
    memory.slots = std::min(kMegakernelMaxSlots, (shared_memory - others) / slot);
    if (memory.slots < kLeastSlots) continue;
    // Warps without a slot of their own have to wait for one.
    const double busy = 0.85 + 0.15 * std::min(1.0, double(memory.slots) / kMegakernelWarps);
    const double held = memory.slots * slot * filling(kinds, slot, blocks, slot_cycles) * busy;
    if (held > most) {
      most = held;
      best = memory;
    }
  }
  if (best.slots == 0) return best;
  choose_warps(kinds.weights, blocks, best);
  // Where parts of the ring do not hold each other up enough, fewer warps multiply (31B in 8 bits on an H200), or a
  // single one copies, whose slots are in order. Neither was measured.
  static_assert(kMegakernelMaxSlots + kMegakernelWarps <= kMegakernelPendingUnits - kMegakernelMostCuts);
  static_assert(kMegakernelMaxSlots + kMegakernelWarps <=
                (kMegakernelPendingEights - 1) * (2 * kMegakernelEight / kMegakernelMostRows));
  static_assert(kMegakernelMaxSlots + kMegakernelWarps <= (kMegakernelPendingTasks - 1) * 2);
  const auto safe = [&](const MegakernelMemory& memory) {
    return stays_together(kinds.weights, blocks, slot_cycles, memory);
  };
  if (safe(best)) return best;
  MegakernelMemory fewer = best;
  fewer.warps = std::min(best.warps, kMegakernelWarps / 2);
  if (safe(fewer)) return fewer;
  best.loaders = 1;
  return best;
}

uint32_t megakernel_splits(uint32_t kv_heads, uint32_t blocks) { return std::max(1u, blocks / kv_heads); }

}  // namespace carat::cuda
