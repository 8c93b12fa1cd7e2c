#pragma once

// Sizes and limits of the token kernel, for the plan; no CUDA needed.
#include <cstdint>
#include <span>

#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

inline constexpr uint32_t kMegakernelThreads = 512;  // of a block that compute
inline constexpr uint32_t kMegakernelLoaders =
    128;  // threads besides: registers are handed over by four warps at a time
inline constexpr uint32_t kMegakernelWarps = kMegakernelThreads / 32;
inline constexpr uint32_t kMegakernelLoaderWarps = 3;  // that may copy weights; the fourth describes stages
inline constexpr uint32_t kMegakernelMostRows = 8;     // weight rows a warp multiplies together
inline constexpr uint32_t kMegakernelCutRows = 4;      // at most, where rows are cut
inline constexpr uint32_t kMegakernelMostCuts = 16;    // of a row
inline constexpr uint32_t kMegakernelWindow = 8;       // descriptions of stages in shared memory
inline constexpr uint32_t kMegakernelMaxSlots = 32;    // of the ring of weights
inline constexpr uint32_t kMegakernelSlotsAhead = 2;   // of them, copied to at once for stages that have not begun
inline constexpr uint32_t kMegakernelTile = 64;        // positions attention takes at a time
inline constexpr uint32_t kMegakernelMaxHeads = 16;    // query heads of a KV head
inline constexpr uint32_t kMegakernelMaxPle = 256;     // per-layer embedding width
inline constexpr uint32_t kMegakernelGateRows = 2;     // of a block at most, where the per-layer gate is in registers
inline constexpr uint32_t kMegakernelProjectRows = 4;  // of a task, where the per-layer projection is
inline constexpr uint32_t kMegakernelRouterRows = 2;   // of a block at most, of a mixture's router
inline constexpr uint32_t kMegakernelMaxPairs = 512;   // rotation angles of both kinds of layers together
inline constexpr uint32_t kMegakernelMaxExpertsUsed = 16;
inline constexpr uint32_t kMegakernelMaxStages = 4096;
inline constexpr uint32_t kMegakernelStageBytes = 368;     // at least what the description of a stage takes
inline constexpr uint32_t kMegakernelSharedBytes = 14464;  // at least what a block needs besides the parts below
// The residual stream: columns a thread has at a time, and how often it has so many at most.
inline constexpr uint32_t kMegakernelThreadColumns = 8, kMegakernelStreamPieces = 2;
inline constexpr uint32_t kMegakernelWidestStream =
    kMegakernelStreamPieces * kMegakernelThreads * kMegakernelThreadColumns;

// What the blocks exchange: values with the version of their buffer, stored and read as one. A token writes a buffer
// several times, and each time is a version. megakernel_exchange.cuh says how.
struct alignas(4) TaggedWord {  // 24 bits of a value, 8 of the version: who reads must have read the one before
  uint32_t bits;
};
struct alignas(8) Tagged {  // exact
  float value;
  uint32_t version;
};
struct alignas(16) TaggedQuad {  // four values of 24 bits, and all bits of the version
  uint32_t words[4];
};
struct alignas(16) TaggedEight {  // eight values of 14 bits, their exponent and 8 bits of the version
  uint32_t words[4];
};
inline constexpr uint32_t kMegakernelEight = 8;
// Results of GEGLU up to that many travel as words, so that blocks may divide them anywhere; longer ones as eights,
// which are half as long.
inline constexpr uint32_t kMegakernelMostWords = 4096;
inline constexpr uint32_t kMegakernelVersions = 255;  // of a buffer in a token at most

// The weights of one product.
struct MegakernelWeights {
  Packing packing;
  uint32_t rows;
  uint32_t run;          // rows that stay together in a block
  uint32_t steps;        // of a row
  uint32_t piece_steps;  // of a row that lie together: one expert's, or all
  friend bool operator==(const MegakernelWeights&, const MegakernelWeights&) = default;
};

// How they are multiplied: a task is `rows` rows, multiplied by one warp, and passes through the ring in `cuts` slots
// of cut_steps steps each.
struct MegakernelTasks {
  uint32_t rows;
  uint32_t cuts, cut_steps;
};
// slot_cycles: megakernel_slot_cycles() of the model.
MegakernelTasks megakernel_tasks(const MegakernelWeights& weights, uint32_t slot_bytes, uint32_t blocks,
                                 uint32_t slot_cycles = 0);
// Whether a slot takes whole rows, so many.
bool megakernel_fits(const MegakernelWeights& weights, uint32_t rows, uint32_t slot_bytes);
// The most tasks a block has of a product.
uint32_t megakernel_share(const MegakernelWeights& weights, uint32_t task_rows, uint32_t blocks);

// Steps of a row that the lanes of a warp multiply at a time.
constexpr uint32_t megakernel_lane_steps(Packing packing) {
  return is_float_packing(packing) ? 1 : packing == Packing::kQ8 ? 2 : 4;
}
// What is copied to a slot in one piece is a run: the rows of one matrix, a row's cut, or one expert's rows where a row
// is put together from experts. Bytes that the factors of a run's steps take in a slot (Q6_K): two bytes a step, copied
// in whole lines of 16 bytes.
constexpr uint32_t megakernel_super_bytes(uint32_t run_steps) { return (2 * run_steps + 14 + 15) / 16 * 16; }

// Results wait in shared memory for those they belong to: values of GEGLU for the rest of their eight, sums of cuts for
// the task's others. There is room for so many eights, units (tasks, or cuts of them) and tasks.
inline constexpr uint32_t kMegakernelPendingEights = 32, kMegakernelPendingUnits = 64, kMegakernelPendingTasks = 32;
// How far ahead of a unit that is not done another of the same product may be, where nothing of the second takes the
// room of the first.
uint32_t megakernel_room(const MegakernelWeights& weights, const MegakernelTasks& tasks);
// How far ahead it may get. Warps that multiply take units in turn; warps that copy have every loaders-th slot each,
// and fill theirs in order. Where slots and turns fall together (two that copy and an even number of slots; as many
// slots as warps), parts of the ring never meet and go ahead as far as they like: kMegakernelNeverHeldUp.
uint32_t megakernel_lead(uint32_t slots, uint32_t loaders, uint32_t warps);
inline constexpr uint32_t kMegakernelNeverHeldUp = 0xffffffffu;

// Shared memory of a block: ring, region for activations and attention; and how many warps work on the ring.
struct MegakernelMemory {
  uint32_t slot_bytes = 0, slots = 0;  // slots 0: too little shared memory
  uint32_t region_bytes = 0;
  uint32_t loaders = kMegakernelLoaderWarps;  // warps that copy
  uint32_t under_way = kMegakernelMaxSlots;   // slots that are copied to at once where a stage waits for them
  // Warps that multiply, powers of two. Half of them are enough for gate and up, where all wait for weights; so half of
  // the slots can be filled while the others are read.
  uint32_t warps = kMegakernelWarps, geglu_warps = kMegakernelWarps / 2;
  uint32_t total(uint32_t d) const { return slots * slot_bytes + region_bytes + d * 4 + kMegakernelSharedBytes; }
};
// What a slot costs a product of such a model, whatever it holds.
uint32_t megakernel_slot_cycles(std::span<const MegakernelWeights> products, uint32_t blocks);
MegakernelMemory megakernel_memory(std::span<const MegakernelWeights> products, uint32_t d, uint32_t blocks,
                                   uint32_t shared_memory);

// Attention over so many tiles a block takes its keys and values through the ring of weights, where heads have this
// size: that of the layers that see everything.
inline constexpr uint32_t kMegakernelDeepTiles = 2, kMegakernelDeepDims = 512;
// Bytes of a row of keys or values there; neighbouring rows begin 16 bytes of banks apart.
constexpr uint32_t megakernel_cache_row(uint32_t hd) { return hd * 2 + 16; }
// Logarithm of the rows that a slot takes: 8 or 16.
constexpr uint32_t megakernel_cache_shift(uint32_t slot_bytes) {
  return slot_bytes >= 16 * megakernel_cache_row(kMegakernelDeepDims) ? 4 : 3;
}
constexpr uint32_t megakernel_attention_bytes() {
  // Queries, two halves of the scores, probabilities, at most three words a head, a key and a value:
  // megakernel_attention.cuh.
  return kMegakernelMaxHeads * ((512 + 32) * 2 + 2 * (kMegakernelTile + 4) * 4 + (kMegakernelTile + 8) * 2 + 3 * 4) +
         2 * 512 * 2;
}
// Blocks that share the keys of one KV head at most.
uint32_t megakernel_splits(uint32_t kv_heads, uint32_t blocks);

}  // namespace carat::cuda
