#include "exec/cuda/kernels/token_shape.h"

#include <algorithm>

#include "exec/cuda/kernels/activation.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kHalfWarps = kTokenThreads / 16;
constexpr uint32_t kSmallestDepth = 3;  // two units of Q6_K and one to come
constexpr uint32_t kDeepest = 5;
constexpr uint32_t kRingSlot = kTokenRows * kTokenThreads * 16 + kTokenThreads / 8 * kTokenRows * 16;
constexpr double kTaskCost = 0.6;  // of beginning and ending a task, in segments

uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

}  // namespace

uint32_t token_slices(uint32_t groups, uint32_t steps, uint32_t blocks) {
  const uint32_t most_groups = divide_up(groups, blocks), segments = divide_up(steps, 2);
  uint32_t best = 1;
  double least = 0.0;
  for (uint32_t slices = 1; slices <= segments; ++slices) {
    const uint32_t rounds = divide_up(most_groups * slices, kHalfWarps);
    const double cost = rounds * (divide_up(segments, slices) + kTaskCost);
    if (slices == 1 || cost < least) {
      least = cost;
      best = slices;
    }
  }
  return best;
}

uint32_t token_product_bytes(Packing packing, uint32_t steps, uint32_t groups, uint32_t slices, uint32_t blocks) {
  const uint32_t activations =
      steps * (is_float_packing(packing) ? kStep * 4 : kStepWords * 4 + kStepBlocks * uint32_t{sizeof(BlockMeta)});
  return activations + divide_up(groups, blocks) * slices * kTokenRows * 4;
}

uint32_t token_attention_bytes() {
  // Queries, two halves of the scores, probabilities, three words a head, a key: token_attention.cuh.
  return kTokenMaxHeads * ((512 + 32) * 2 + 2 * (64 + 4) * 4 + (64 + 8) * 2 + 3 * 4) + 512 * 2;
}

uint32_t token_shared_bytes(uint32_t depth, uint32_t region_bytes, uint32_t d) {
  return depth * kRingSlot + region_bytes + d * 4 + kTokenSharedBytes;
}

uint32_t token_ring_depth(uint32_t region_bytes, uint32_t d, uint32_t shared_memory) {
  for (uint32_t depth = kDeepest; depth >= kSmallestDepth; --depth) {
    if (token_shared_bytes(depth, region_bytes, d) <= shared_memory) return depth;
  }
  return 0;
}

uint32_t token_splits(uint32_t kv_heads, uint32_t blocks) { return std::max(1u, blocks / kv_heads); }

}  // namespace carat::cuda
