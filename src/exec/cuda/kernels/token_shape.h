#pragma once

// Sizes and limits of the token kernel, for the plan; no CUDA needed.
#include <cstdint>

#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

inline constexpr uint32_t kTokenThreads = 512;
inline constexpr uint32_t kTokenRows = 4;         // weight rows a half-warp multiplies together: a row group
inline constexpr uint32_t kTokenSegment = 512;    // columns a half-warp takes at a time: two steps
inline constexpr uint32_t kTokenStagesAhead = 6;  // stages the weight loads may run ahead
inline constexpr uint32_t kTokenWindow = 8;       // descriptions of stages in shared memory
inline constexpr uint32_t kTokenMaxPieces = 3;    // float4 pieces of the residual stream a thread owns
inline constexpr uint32_t kTokenMaxWidth = 4 * kTokenMaxPieces * kTokenThreads;  // of the residual stream
inline constexpr uint32_t kTokenTile = 64;                                       // positions attention takes at a time
inline constexpr uint32_t kTokenMaxHeads = 16;                                   // query heads of a KV head
inline constexpr uint32_t kTokenMaxPle = 256;                                    // per-layer embedding width
inline constexpr uint32_t kTokenMaxPairs = 512;  // rotation angles of both kinds of layers together
inline constexpr uint32_t kTokenMaxExpertsUsed = 16;
inline constexpr uint32_t kTokenMaxStages = 4096;
inline constexpr uint32_t kTokenStageBytes = 352;    // at least what the description of a stage takes
inline constexpr uint32_t kTokenSharedBytes = 8192;  // at least what a block needs besides the parts below

// What the blocks exchange: values with the number of the stage that made them, stored and read as one.
// token_exchange.cuh says how.
struct alignas(8) Tagged {
  float value;
  uint32_t stage;
};
struct alignas(16) TaggedQuad {  // four values
  uint32_t words[4];
};

// Tasks a row group is cut into along its columns, so that the 32 half-warps of each of `blocks` blocks have as much to
// do as each other.
uint32_t token_slices(uint32_t groups, uint32_t steps, uint32_t blocks);
// Shared memory for the activations and partial sums of a product.
uint32_t token_product_bytes(Packing packing, uint32_t steps, uint32_t groups, uint32_t slices, uint32_t blocks);
uint32_t token_attention_bytes();
// The most weight units in flight per lane that fit beside a region of these bytes and the residual stream; 0 when too
// few do.
uint32_t token_ring_depth(uint32_t region_bytes, uint32_t d, uint32_t shared_memory);
uint32_t token_shared_bytes(uint32_t depth, uint32_t region_bytes, uint32_t d);
// Blocks that share the keys of one KV head at most.
uint32_t token_splits(uint32_t kv_heads, uint32_t blocks);

}  // namespace carat::cuda
