#pragma once

// Device code: what a block of the token kernel keeps in shared memory besides activations and weights.
//
// It lies at the beginning, where every function finds it: a function that is called takes nothing but the stage to
// work on. Arguments, and what a caller keeps, take registers or local memory, and what was put in local memory takes
// longer to come back than a short product.
#include "exec/cuda/kernels/token_ring.cuh"

namespace carat::cuda {

// Results of GEGLU until the eight that travel together are there. The ring is chosen so that no warp gets further
// ahead of another than there is room here: token_lead(), token_room() (token_shape.h).
struct PendingEights {
  alignas(16) float values[kTokenPendingEights][kTokenEight];
  uint32_t made[kTokenPendingEights];  // tasks that have put theirs
};

// Sums of cuts of tasks until all of a task's are there, likewise. A warp that puts sums together has left its slot,
// but not taken its next.
struct PendingCuts {
  float sums[kTokenPendingUnits][kTokenCutRows];
  uint32_t made[kTokenPendingTasks];
};

struct TokenShared {
  RingState ring;
  uint64_t described[kTokenWindow];
  WindowStage window[kTokenWindow];
  TokenStage loading[kTokenLoaderWarps][2];  // of the warps that load weights
  alignas(16) float sums[12 * kTokenWarps];
  float factors[kTokenMaxPle];  // of this block's rows of a kGeluTimes product
  float2 turns[kTokenMaxPairs];
  PendingEights eights;
  PendingCuts cuts;
  uint32_t expert_ids[kTokenMaxExpertsUsed];
  float expert_weights[kTokenMaxExpertsUsed];
  // The next task of the block as each warp knows it: its place in the ring, and whose turn it is.
  struct Turn {
    uint32_t place, warp;
  } turn[kTokenWarps];
  uint32_t at[kTokenWarps];  // stages each warp has behind it
  uint32_t routed, weighed;  // the stages whose experts were chosen last, and whose weights were worked out
  float stream_factor;       // what normalises the residual stream as it is
  uint32_t begun;            // stages begun
  // What does not change during a token.
  uint32_t region_begin, slots_begin;  // in carat_token_bytes
  uint32_t slots_at, slot_bytes, slot_count, slot_inverse;
  uint32_t token, position, sequence, serial;
  uint32_t d, stage_count, experts_used;
  float eps, softcap, inverse_d;
  uint32_t* non_finite;
  uint64_t* trace;  // of this block, or null

  // By one thread, before all others are held back once.
  __device__ void begin(const TokenJob& job, unsigned char* memory) {
    region_begin = kTokenSharedBytes + job.d * 4;
    slots_begin = region_begin + job.memory.region_bytes;
    slots_at = shared_address(memory + slots_begin);
    slot_bytes = job.memory.slot_bytes, slot_count = job.memory.slots;
    slot_inverse = 0xffffffffu / job.memory.slots + 1;
    d = job.d, stage_count = job.stage_count, experts_used = job.experts_used;
    eps = job.eps, softcap = job.softcap, inverse_d = 1.0f / static_cast<float>(job.d), non_finite = job.non_finite;
    trace = blockIdx.x == 0 ? job.trace : nullptr;
    routed = weighed = begun = 0;
    for (uint32_t& stages : at) stages = 0;
    for (Turn& next : turn) next = {0, 0};
    for (uint32_t& made : eights.made) made = 0;
    for (uint32_t& made : cuts.made) made = 0;
    for (uint64_t& barrier : described) barrier_init(shared_address(&barrier), 1);
    Ring(ring).init(job.memory.slots);
  }
};
static_assert(sizeof(TokenShared) <= kTokenSharedBytes && kTokenSharedBytes % 128 == 0);
static_assert(sizeof(TokenStage) <= kTokenStageBytes);

__device__ __forceinline__ TokenShared& token_shared() { return *reinterpret_cast<TokenShared*>(carat_token_bytes); }

// The parts behind it. What is found from carat_token_bytes is known to be in shared memory, where loads and stores are
// quicker than through a pointer to anywhere.
__device__ __forceinline__ float* token_stream() {  // [d], the residual stream
  return reinterpret_cast<float*>(carat_token_bytes + kTokenSharedBytes);
}
__device__ __forceinline__ unsigned char* token_region() { return carat_token_bytes + token_shared().region_begin; }
__device__ __forceinline__ unsigned char* token_slots() { return carat_token_bytes + token_shared().slots_begin; }

// Stages this warp has behind it. Reads what it needs for that anew: what is kept over a call may go to local memory.
__device__ __forceinline__ volatile uint32_t& stages_behind() {
  uint32_t thread, shared;
  find_again(thread, shared);
  auto* at = static_cast<TokenShared*>(__cvta_shared_to_generic(shared))->at + thread / 32;
  __builtin_assume(__isShared(at));
  return *at;
}

}  // namespace carat::cuda
