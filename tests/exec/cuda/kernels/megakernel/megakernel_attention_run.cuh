#pragma once

// Attention of the token kernel on its own: every block publishes its part of a
// made-up QKV product, all of them attend, combine and take the result, layer
// after layer as in the real kernel, with its loaders and its ring.
#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/megakernel/attention.cuh"

namespace carat::cuda {

struct MegakernelAttentionLayers {
  MegakernelJob job;     // attention stages, eps and memory; versions count layers from 1
  const float* product;  // [(H + 2 Hkv) * hd], the same for every layer
  const float2* turns;   // [hd / 2]
  uint32_t position, sequence, serial;
  float* out;  // [H * hd] of the last layer
};

__global__ void __launch_bounds__(kMegakernelThreads + kMegakernelLoaders, 1)
    megakernel_attention_layers(const __grid_constant__ MegakernelAttentionLayers run) {
#if defined(CARAT_MEGAKERNEL_INSTRUCTIONS)
  MegakernelShared& shared = megakernel_shared();
  if (threadIdx.x == kMegakernelThreads) {
    shared.begin(run.job, carat_megakernel_shared);
    shared.begun = kMegakernelMaxStages;  // caches of other layers are there before the kernel begins
    shared.position = run.position, shared.sequence = run.sequence, shared.serial = run.serial;
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32;
  if (warp >= kMegakernelWarps) {
    const uint32_t loader = warp - kMegakernelWarps;
    if (loader >= run.job.memory.loaders) return;
    WeightLoader<kMegakernelAny>(shared.slots_at, Ring(shared.ring), run.job.memory, nullptr, loader)
        .run(run.job, shared.loading[loader], &shared.routed, &shared.begun, run.position, run.sequence);
    return;
  }
  for (uint32_t l = 0; l < run.job.stage_count; ++l) {
    WindowStage& now = shared.window[0];
    const MegakernelAttention& a = now.stage.attention;
    if (threadIdx.x < sizeof(MegakernelStage) / 16) {
      reinterpret_cast<uint4*>(&now.stage)[threadIdx.x] =
          reinterpret_cast<const uint4*>(run.job.stages + l)[threadIdx.x];
    }
    compute_barrier();
    if (threadIdx.x == 0) now.share = attention_share(a, run.position);
    if (threadIdx.x < a.shape.hd / 2) shared.turns[threadIdx.x] = run.turns[threadIdx.x];
    const uint32_t tag = version_tag(run.serial, l + 1);
    const uint32_t quads = (a.shape.H + (a.owns ? 2 * a.shape.Hkv : 0)) * a.shape.hd / 4;
    for (uint32_t q = blockIdx.x + gridDim.x * threadIdx.x; q < quads; q += gridDim.x * kMegakernelThreads) {
      publish4(const_cast<TaggedWord*>(a.qkv) + 4 * q, reinterpret_cast<const float4*>(run.product)[q], tag);
    }
    compute_barrier();
    attend(attention_start(a, now.share), 0);
    compute_barrier();
    combine_shares(0);
    for (uint32_t q = threadIdx.x; q < a.shape.H * a.shape.hd / 4; q += kMegakernelThreads) {
      const float4 v = await4(a.out + 4 * q, tag, load4_tagged(a.out + 4 * q));
      if (blockIdx.x == 0 && l + 1 == run.job.stage_count) reinterpret_cast<float4*>(run.out)[q] = v;
    }
    compute_barrier();
  }
#else
  __trap();
#endif
}

// `blocks` must fit the chip together.
inline void run_megakernel_attention(const MegakernelAttentionLayers& run, uint32_t blocks, cudaStream_t stream) {
  const uint32_t bytes = run.job.memory.total(run.job.d);
  allow_shared_memory(megakernel_attention_layers, bytes, "token attention");
  launch_kernel("token attention", megakernel_attention_layers, dim3(blocks),
                dim3(kMegakernelThreads + kMegakernelLoaders), bytes,
                LaunchConfig{.stream = stream, .cooperative = true}, run);
}

}  // namespace carat::cuda
