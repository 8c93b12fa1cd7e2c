#pragma once

// Puts together what the blocks of one row and KV head computed from their shares of the keys, without a second launch.
//
// Every block leaves its unnormalised output, maximum and sum in scratch memory and counts itself as arrived. With
// little to combine, the last to arrive does it alone and the others leave. With many shares that would keep one SM
// busy for as long as the attention itself, so the others wait for the last one, for a bounded time, and help: the
// output is cut into slices that warps claim one by one. Nothing depends on the helpers: the last to arrive finds all
// shares complete and claims whatever is left, so blocks need not be resident together. The arithmetic of a slice is
// the same whoever does it, so the result is too.
#include <cuda_bf16.h>

#include "exec/cuda/kernels/attention/attention_config.h"
#include "exec/cuda/kernels/ptx/mma.cuh"

namespace carat::cuda {

// One counter word holds three counts; zero before and after.
inline constexpr uint32_t kArrived = 1u, kDeparted = 1u << 10, kClaimed = 1u << 20;
inline constexpr uint32_t kFieldMask = (1u << 10) - 1;

inline constexpr uint32_t kAloneFloats = 32 * 1024;  // shares up to this size are combined by one block
inline constexpr int kHelperPolls = 32;              // about 20 microseconds of waiting

// The shares of one row's heads that belong to one KV head.
struct CombineJob {
  const float* outputs;     // [heads, splits, hd], unnormalised
  const float2* stats;      // [heads, splits]: maximum of score * log2(e), sum
  float* out;               // [heads, hd]
  __nv_bfloat16* out_bf16;  // the same; one of them is null
  uint32_t heads, splits, hd;
  uint32_t shares;  // splits in use: the first ones
};

// A warp combines columns [4 kLanes slice ...) of one head: kLanes lanes take four columns each, and 32 / kLanes shares
// are read side by side, `kSkinny` of each in flight.
template <int kLanes, int kSkinny>
__device__ __forceinline__ void combine_slice(const CombineJob& job, uint32_t slice) {
  constexpr uint32_t kSideBySide = 32 / kLanes;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t slices_per_head = (job.hd + 4 * kLanes - 1) / (4 * kLanes);
  const uint32_t head = slice / slices_per_head;
  const uint32_t column = (slice % slices_per_head * kLanes + lane % kLanes) * 4;
  const bool in_head = column < job.hd;
  const float* outputs = job.outputs + static_cast<uint64_t>(head) * job.splits * job.hd + (in_head ? column : 0);
  const float2* stats = job.stats + static_cast<uint64_t>(head) * job.splits;

  float largest = -INFINITY, sum = 0.0f;
  float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const auto scale_to = [&](float new_max) {
    const float keep = exp2_fast(largest - new_max);
    sum *= keep;
    total = make_float4(total.x * keep, total.y * keep, total.z * keep, total.w * keep);
    largest = new_max;
  };
  const auto add = [&](float share_max, float share_sum, const float4& share) {
    const float take = exp2_fast(share_max - largest);
    sum += share_sum * take;
    total = make_float4(total.x + share.x * take, total.y + share.y * take, total.z + share.z * take,
                        total.w + share.w * take);
  };

  for (uint32_t first = lane / kLanes; first < job.shares; first += kSideBySide * kSkinny) {
    float2 stat[kSkinny];
    float4 share[kSkinny];
    float new_max = largest;
#pragma unroll
    for (int i = 0; i < kSkinny; ++i) {
      // Past the end the last share is read again, and not added.
      const uint32_t s = min(first + i * kSideBySide, job.shares - 1);
      stat[i] = __ldcg(stats + s);
      share[i] = __ldcg(reinterpret_cast<const float4*>(outputs + static_cast<uint64_t>(s) * job.hd));
    }
#pragma unroll
    for (int i = 0; i < kSkinny; ++i) new_max = fmaxf(new_max, stat[i].x);
    scale_to(new_max);
#pragma unroll
    for (int i = 0; i < kSkinny; ++i) {
      if (first + i * kSideBySide < job.shares) add(stat[i].x, stat[i].y, share[i]);
    }
  }
#pragma unroll
  for (int offset = kLanes; offset < 32; offset *= 2) {
    const float other_max = __shfl_xor_sync(0xffffffffu, largest, offset);
    const float other_sum = __shfl_xor_sync(0xffffffffu, sum, offset);
    const float4 other =
        make_float4(__shfl_xor_sync(0xffffffffu, total.x, offset), __shfl_xor_sync(0xffffffffu, total.y, offset),
                    __shfl_xor_sync(0xffffffffu, total.z, offset), __shfl_xor_sync(0xffffffffu, total.w, offset));
    // Lanes without a share have maximum -infinity; where both have none, there is nothing to add.
    const float new_max = fmaxf(largest, other_max);
    if (new_max != -INFINITY) {
      scale_to(new_max);
      add(other_max, other_sum, other);
    }
  }
  if (lane < kLanes && in_head) {
    const float factor = 1.0f / sum;
    const uint64_t at = static_cast<uint64_t>(head) * job.hd + column;
    const float4 v = make_float4(total.x * factor, total.y * factor, total.z * factor, total.w * factor);
    if (job.out != nullptr) {
      *reinterpret_cast<float4*>(job.out + at) = v;
    } else {
      auto* to = reinterpret_cast<__nv_bfloat162*>(job.out_bf16 + at);
      to[0] = __floats2bfloat162_rn(v.x, v.y);
      to[1] = __floats2bfloat162_rn(v.z, v.w);
    }
  }
}

// How many blocks have arrived once all have or the patience of a helper is over.
__device__ __forceinline__ uint32_t wait_for_arrivals(const uint32_t* counter, uint32_t arrived, uint32_t blocks) {
  for (int poll = 0; poll < kHelperPolls && arrived < blocks; ++poll) {
    arrived = load_acquire(counter) & kFieldMask;
  }
  return arrived;
}

// Called by all threads of each of the `blocks` blocks after they have stored their shares. `flag`: a word of shared
// memory.
__device__ __forceinline__ void combine_shares(const CombineJob& job, uint32_t* counter, uint32_t blocks,
                                               uint32_t* flag) {
  const bool alone = job.heads * job.hd * job.shares <= kAloneFloats;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t arrived = (atomicAdd(counter, kArrived) & kFieldMask) + 1;
    if (!alone) arrived = wait_for_arrivals(counter, arrived, blocks);
    __threadfence();
    *flag = arrived;
  }
  __syncthreads();
  const bool complete = *flag == blocks;

  if (alone) {
    if (!complete) return;
    const uint32_t slices = job.heads * ((job.hd + 127) / 128);
    for (uint32_t slice = threadIdx.x / 32; slice < slices; slice += blockDim.x / 32) combine_slice<32, 8>(job, slice);
    if (threadIdx.x == 0) *counter = 0;
    return;
  }

  if (complete) {
    const uint32_t slices = job.heads * ((job.hd + 15) / 16);
    for (;;) {
      uint32_t slice = 0;
      if (threadIdx.x % 32 == 0) slice = atomicAdd(counter, kClaimed) / kClaimed;
      slice = __shfl_sync(0xffffffffu, slice, 0);
      if (slice >= slices) break;
      combine_slice<4, 8>(job, slice);
    }
  }
  // The last to depart clears the counter: nobody looks at it any more.
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t departed = (atomicAdd(counter, kDeparted) / kDeparted & kFieldMask) + 1;
    if (departed == blocks) atomicExch(counter, 0u);
  }
}

}  // namespace carat::cuda
