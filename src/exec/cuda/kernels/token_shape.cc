#include "exec/cuda/kernels/token_shape.h"

#include <algorithm>

#include "exec/cuda/kernels/activation.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kLeastSlots = 4;  // fewer would not keep the memory busy
constexpr uint32_t kSmallestSlot = 14 * 1024, kLargestSlot = 24 * 1024, kSlotStride = 256;
static_assert(kSmallestSlot >= 8 * token_cache_row(kTokenDeepDims));
// More would take shared memory from the ring: beyond this, warps share no row groups.
constexpr uint32_t kPartialSums = 640;
constexpr double kTaskCost = 1.5;  // of beginning and ending a task, in what a warp multiplies at a time

uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

uint32_t activation_bytes(Packing packing, uint32_t steps) {
  return steps * (is_float_packing(packing) ? kStep * 4 : kStepWords * 4 + kStepBlocks * uint32_t{sizeof(BlockMeta)});
}

// What `steps` steps of `groups` row groups take in a slot.
uint32_t slot_use(const TokenWeights& weights, uint32_t groups, uint32_t steps) {
  const PackedBytes bytes = packed_bytes(weights.packing);
  const uint32_t rows = groups * kTokenRows;
  uint32_t use = rows * steps * (bytes.quants + bytes.high + bytes.scales);
  if (bytes.super == 0) return use;
  if (weights.piece_steps != weights.steps) {
    return use + divide_up(steps, weights.piece_steps) * token_super_bytes(rows * weights.piece_steps);
  }
  return use + kTokenRuns * token_super_bytes(steps < weights.steps ? steps : rows * steps);
}

double weight_bytes(const TokenWeights& weights) {
  return double(weights.groups) * kTokenRows * weights.steps * packed_bytes(weights.packing).total();
}

// Share of the ring's bytes that hold weights while these products are under way.
double filling(std::span<const TokenWeights> products, uint32_t slot_bytes, uint32_t blocks) {
  double all = 0.0, slots = 0.0;
  for (const TokenWeights& weights : products) {
    const TokenChunks chunks = token_chunks(weights, slot_bytes, blocks);
    all += weight_bytes(weights);
    slots += double(divide_up(token_share(weights, blocks), chunks.groups)) * chunks.cuts * blocks;
  }
  return slots == 0.0 ? 0.0 : all / (slots * slot_bytes);
}

}  // namespace

uint32_t token_share(const TokenWeights& weights, uint32_t blocks) {
  return divide_up(divide_up(weights.groups, weights.deal), blocks) * weights.deal;
}

TokenChunks token_chunks(const TokenWeights& weights, uint32_t slot_bytes, uint32_t blocks) {
  TokenChunks chunks{};
  const uint32_t most_groups = token_share(weights, blocks);
  const uint32_t lane_steps = token_lane_steps(weights.packing);
  chunks.groups = 1;
  chunks.cuts = 1;
  chunks.cut_steps = weights.steps;
  if (slot_use(weights, 1, weights.steps) <= slot_bytes) {
    const uint32_t most = std::min(kTokenWarps, most_groups);
    while (chunks.groups < most && slot_use(weights, chunks.groups + 1, weights.steps) <= slot_bytes) ++chunks.groups;
  } else {
    // Cuts of equal length, at whole experts or at what a warp takes at a time.
    const uint32_t unit = weights.piece_steps != weights.steps ? weights.piece_steps : lane_steps;
    const uint32_t units = divide_up(weights.steps, unit);
    const uint32_t most = std::max(1u, slot_bytes / slot_use(weights, 1, unit));
    chunks.cut_steps = divide_up(units, divide_up(units, most)) * unit;
    chunks.cuts = divide_up(weights.steps, chunks.cut_steps);
  }
  // Warps take tasks in turn. Where few row groups leave warps without work, they share them; where there are many, a
  // slot is left the sooner the shorter its tasks are.
  const uint32_t turns = divide_up(chunks.cut_steps, lane_steps), most_tasks = most_groups * chunks.cuts;
  double least = 0.0;
  for (uint32_t slices = 1; slices <= std::min(turns, kTokenWarps); ++slices) {
    if (slices > 1 && most_tasks * slices > kPartialSums) break;
    const uint32_t length = divide_up(turns, slices), rounds = divide_up(most_tasks * slices, kTokenWarps);
    const double cost = rounds * (length + kTaskCost) + length;
    if (slices > 1 && cost >= least) continue;
    least = cost;
    chunks.slice_steps = length * lane_steps;
    chunks.slices = divide_up(chunks.cut_steps, chunks.slice_steps);
  }
  return chunks;
}

TokenMemory token_memory(std::span<const TokenWeights> products, uint32_t d, uint32_t blocks, uint32_t shared_memory) {
  TokenMemory best;
  double most = 0.0;
  for (uint32_t slot = kSmallestSlot; slot <= kLargestSlot; slot += kSlotStride) {
    TokenMemory memory;
    memory.slot_bytes = slot;
    memory.region_bytes = token_attention_bytes();
    bool fits = true;
    for (const TokenWeights& weights : products) {
      const TokenChunks chunks = token_chunks(weights, slot, blocks);
      const uint32_t activations = activation_bytes(weights.packing, weights.steps);
      memory.region_bytes = std::max(memory.region_bytes, activations);
      // A product of the residual stream keeps two vectors behind its activations.
      if (weights.steps == steps_of(d)) {
        memory.region_bytes = std::max(memory.region_bytes, activations + 2 * 4 * weights.steps * kStep);
      }
      memory.partial_bytes =
          std::max(memory.partial_bytes, token_share(weights, blocks) * chunks.cuts * chunks.slices * 16);
      fits = fits && slot_use(weights, chunks.groups, chunks.cut_steps) <= slot;
    }
    memory.region_bytes = divide_up(memory.region_bytes, 128) * 128;
    const uint32_t others = memory.total(d);
    if (!fits || others >= shared_memory) continue;
    memory.slots = std::min(kTokenMaxSlots, (shared_memory - others) / slot);
    if (memory.slots < kLeastSlots) continue;
    const double held = memory.slots * slot * filling(products, slot, blocks);
    if (held > most) {
      most = held;
      best = memory;
    }
  }
  return best;
}

uint32_t token_splits(uint32_t kv_heads, uint32_t blocks) { return std::max(1u, blocks / kv_heads); }

}  // namespace carat::cuda
