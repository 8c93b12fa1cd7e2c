#pragma once

// Sizes and limits of the token kernel, for the plan; no CUDA needed.
#include <cstdint>
#include <span>

#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

inline constexpr uint32_t kTokenThreads = 512;  // of a block that compute; one warp more loads the weights
inline constexpr uint32_t kTokenLoaders = 128;  // threads: registers are handed over by four warps at a time
inline constexpr uint32_t kTokenWarps = kTokenThreads / 32;
inline constexpr uint32_t kTokenLoaderWarps = 3;  // that copy weights, slots in turn; the fourth describes stages
inline constexpr uint32_t kTokenRows = 4;         // weight rows a warp multiplies together: a row group
inline constexpr uint32_t kTokenWindow = 4;       // descriptions of stages in shared memory
inline constexpr uint32_t kTokenMaxSlots = 32;    // of the ring of weights
inline constexpr uint32_t kTokenTile = 64;        // positions attention takes at a time
inline constexpr uint32_t kTokenMaxHeads = 16;    // query heads of a KV head
inline constexpr uint32_t kTokenMaxPle = 256;     // per-layer embedding width
inline constexpr uint32_t kTokenMaxPairs = 512;   // rotation angles of both kinds of layers together
inline constexpr uint32_t kTokenMaxExpertsUsed = 16;
inline constexpr uint32_t kTokenMaxStages = 4096;
inline constexpr uint32_t kTokenStageBytes = 368;     // at least what the description of a stage takes
inline constexpr uint32_t kTokenSharedBytes = 14336;  // at least what a block needs besides the parts below

// What the blocks exchange: values with the number of the stage that made them, stored and read as one.
// token_exchange.cuh says how.
struct alignas(8) Tagged {
  float value;
  uint32_t stage;
};
struct alignas(16) TaggedQuad {  // four values
  uint32_t words[4];
};
struct alignas(16) TaggedRun {  // 16 values, rounded as products want them
  uint32_t words[3][4];
};
inline constexpr uint32_t kTokenRun = 16;

// The weights of one product.
struct TokenWeights {
  Packing packing;
  uint32_t groups;       // row groups
  uint32_t deal;         // row groups that stay together in a block
  uint32_t steps;        // of a row
  uint32_t piece_steps;  // of a row that lie together: one expert's, or all
};

// How they pass through shared memory: a slot of the ring takes `groups` row groups, or a cut of one row group where
// its rows are long. `slices` warps share a row group of a slot, each taking slice_steps of its steps.
struct TokenChunks {
  uint32_t groups;
  uint32_t cuts, cut_steps;
  uint32_t slices, slice_steps;
};
// The most row groups a block has of a product.
uint32_t token_share(const TokenWeights& weights, uint32_t blocks);
TokenChunks token_chunks(const TokenWeights& weights, uint32_t slot_bytes, uint32_t blocks);

// Steps of a row that the lanes of a warp multiply at a time.
constexpr uint32_t token_lane_steps(Packing packing) {
  return is_float_packing(packing) ? 1 : packing == Packing::kQ8 ? 2 : 4;
}
// What is copied to a slot in one piece is a run: the rows of one matrix (at most kTokenRuns of them: two experts'
// gates and ups), a row's cut, or one expert's rows where a row is put together from experts.
inline constexpr uint32_t kTokenRuns = 4;
// Bytes that the factors of a run's steps take in a slot (Q6_K): two bytes a step, copied in whole lines of 16 bytes.
constexpr uint32_t token_super_bytes(uint32_t run_steps) { return (2 * run_steps + 14 + 15) / 16 * 16; }

// Shared memory of a block: ring, region for activations and attention, partial sums.
struct TokenMemory {
  uint32_t slot_bytes = 0, slots = 0;  // slots 0: too little shared memory
  uint32_t region_bytes = 0;
  uint32_t partial_bytes = 0;
  uint32_t total(uint32_t d) const {
    return slots * slot_bytes + region_bytes + partial_bytes + d * 4 + kTokenSharedBytes;
  }
};
TokenMemory token_memory(std::span<const TokenWeights> products, uint32_t d, uint32_t blocks, uint32_t shared_memory);

// Attention over so many tiles a block takes its keys and values through the ring of weights, where heads have this
// size: that of the layers that see everything.
inline constexpr uint32_t kTokenDeepTiles = 2, kTokenDeepDims = 512;
// Bytes of a row of keys or values there; neighbouring rows begin 16 bytes of banks apart.
constexpr uint32_t token_cache_row(uint32_t hd) { return hd * 2 + 16; }
// Logarithm of the rows that a slot takes: 8 or 16.
constexpr uint32_t token_cache_shift(uint32_t slot_bytes) {
  return slot_bytes >= 16 * token_cache_row(kTokenDeepDims) ? 4 : 3;
}
constexpr uint32_t token_attention_bytes() {
  // Queries, two halves of the scores, probabilities, three words a head, a key: token_attention.cuh.
  return kTokenMaxHeads * ((512 + 32) * 2 + 2 * (kTokenTile + 4) * 4 + (kTokenTile + 8) * 2 + 3 * 4) + 512 * 2;
}
// Blocks that share the keys of one KV head at most.
uint32_t token_splits(uint32_t kv_heads, uint32_t blocks);

}  // namespace carat::cuda
