#pragma once

// Device code: what a block of the token kernel keeps in shared memory besides activations and weights.
//
// It lies at the beginning, where every function finds it: a function that is called takes nothing but the stage to
// work on. Arguments, and what a caller keeps, take registers or local memory, and what was put in local memory takes
// longer to come back than a short product.
#include "exec/cuda/kernels/megakernel/ring.cuh"

namespace carat::cuda {

// Results of GEGLU until the eight that travel together are there. The ring is chosen so that no warp gets further
// ahead of another than there is room here: megakernel_lead(), megakernel_room() (megakernel_shape.h).
struct PendingEights {
  alignas(16) float values[kMegakernelPendingEights][kMegakernelEight];
  uint32_t made[kMegakernelPendingEights];  // tasks that have put theirs
};

// Sums of cuts of tasks until all of a task's are there, likewise. A warp that puts sums together has left its slot,
// but not taken its next.
struct PendingCuts {
  float sums[kMegakernelPendingUnits][kMegakernelCutRows];
  uint32_t made[kMegakernelPendingTasks];
};

struct MegakernelShared {
  RingState ring;
  uint64_t described[kMegakernelWindow];
  WindowStage window[kMegakernelWindow];
  MegakernelStage loading[kMegakernelLoaderWarps][2];  // of the warps that load weights
  alignas(16) float sums[12 * kMegakernelWarps];
  float factors[kMegakernelMaxPle];  // of this block's rows of a kGeluTimes product
  float2 turns[kMegakernelMaxPairs];
  PendingEights eights;
  PendingCuts cuts;
  uint32_t expert_ids[kMegakernelMaxExpertsUsed];
  float expert_weights[kMegakernelMaxExpertsUsed];
  // The next task of the block as each warp knows it: its place in the ring, and whose turn it is.
  struct Turn {
    uint32_t place, warp;
  } turn[kMegakernelWarps];
  uint32_t at[kMegakernelWarps];  // stages each warp has behind it
  uint32_t routed, weighed;       // the stages whose experts were chosen last, and whose weights were worked out
  float stream_factor;            // what normalises the residual stream as it is
  uint32_t begun;                 // stages begun
  // What does not change during a token.
  uint32_t region_begin, slots_begin;  // in carat_megakernel_shared
  uint32_t slots_at, slot_bytes, slot_count, slot_inverse;
  uint32_t token, position, sequence, serial;
  uint32_t d, stage_count, experts_used;
  float eps, softcap, inverse_d;
  uint32_t* non_finite;
  uint64_t* trace;  // of this block, or null

  // By one thread, before all others are held back once.
  __device__ void begin(const MegakernelJob& job, unsigned char* memory) {
    region_begin = kMegakernelSharedBytes + job.d * 4;
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
    for (uint64_t& barrier : described) mbarrier_init(shared_address(&barrier), 1);
    Ring(ring).init(job.memory.slots);
  }
};
static_assert(sizeof(MegakernelShared) <= kMegakernelSharedBytes && kMegakernelSharedBytes % 128 == 0);
static_assert(sizeof(MegakernelStage) <= kMegakernelStageBytes);

__device__ __forceinline__ MegakernelShared& megakernel_shared() {
  return *reinterpret_cast<MegakernelShared*>(carat_megakernel_shared);
}

// The parts behind it. What is found from carat_megakernel_shared is known to be in shared memory, where loads and
// stores are quicker than through a pointer to anywhere.
__device__ __forceinline__ float* megakernel_stream() {  // [d], the residual stream
  return reinterpret_cast<float*>(carat_megakernel_shared + kMegakernelSharedBytes);
}
__device__ __forceinline__ unsigned char* megakernel_region() {
  return carat_megakernel_shared + megakernel_shared().region_begin;
}
__device__ __forceinline__ unsigned char* megakernel_slots() {
  return carat_megakernel_shared + megakernel_shared().slots_begin;
}

// Stages this warp has behind it. Reads what it needs for that anew: what is kept over a call may go to local memory.
__device__ __forceinline__ volatile uint32_t& stages_behind() {
  uint32_t thread, shared;
  find_again(thread, shared);
  auto* at = static_cast<MegakernelShared*>(__cvta_shared_to_generic(shared))->at + thread / 32;
  __builtin_assume(__isShared(at));
  return *at;
}

}  // namespace carat::cuda
