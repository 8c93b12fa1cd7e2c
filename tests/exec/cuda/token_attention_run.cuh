#pragma once

// Attention of the token kernel on its own: every block publishes its part of a
// made-up QKV product, all of them attend, combine and take the result, layer
// after layer as in the real kernel, with its loaders and its ring.
#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/token_attention.cuh"

namespace carat::cuda {

struct TokenAttentionLayers {
  TokenJob job;          // attention stages, eps and memory; stage l is number 3 l + 2,
                         // its product 3 l + 1
  const float* product;  // [(H + 2 Hkv) * hd], the same for every layer
  const float2* turns;   // [hd / 2]
  uint32_t position, sequence, serial;
  float* out;  // [H * hd] of the last layer
};

struct TokenAttentionTestShared {
  uint64_t barriers[2 * kTokenMaxSlots];
  TokenStage loading[kTokenLoaderWarps][2];
  WindowStage stage;
  AttentionCall call;
  float2 turns[256];
  uint32_t routed, begun;
};

inline uint32_t token_attention_test_bytes(const TokenMemory& memory) {
  return memory.slots * memory.slot_bytes + token_attention_bytes() + sizeof(TokenAttentionTestShared);
}

__global__ void __launch_bounds__(kTokenThreads + kTokenLoaders, 1)
    token_attention_layers(const __grid_constant__ TokenAttentionLayers run) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char slots[];
  unsigned char* region = slots + run.job.memory.slots * run.job.memory.slot_bytes;
  auto& shared = *reinterpret_cast<TokenAttentionTestShared*>(region + token_attention_bytes());
  const RingBarriers barriers(shared.barriers);
  if (threadIdx.x == kTokenThreads) {
    barriers.init(run.job.memory.slots);
    shared.routed = 0;
    shared.begun = kTokenMaxStages;  // caches of other layers are there before the kernel begins
    shared.call = {region,
                   shared.turns,
                   run.position,
                   run.sequence,
                   run.serial,
                   run.job.eps,
                   shared_address(slots),
                   run.job.memory.slot_bytes,
                   run.job.memory.slots};
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32;
  if (warp >= kTokenWarps) {
    const uint32_t loader = warp - kTokenWarps;
    if (loader >= kTokenLoaderWarps) return;
    WeightLoader(shared_address(slots), barriers, run.job.memory, nullptr, loader)
        .run(run.job, shared.loading[loader], &shared.routed, &shared.begun, run.position, run.sequence);
    return;
  }
  RingPlace place;
  for (uint32_t l = 0; l < run.job.stage_count; ++l) {
    const TokenAttention& a = shared.stage.stage.attention;
    if (threadIdx.x < sizeof(TokenStage) / 16) {
      reinterpret_cast<uint4*>(&shared.stage.stage)[threadIdx.x] =
          reinterpret_cast<const uint4*>(run.job.stages + l)[threadIdx.x];
    }
    token_barrier();
    if (threadIdx.x == 0) shared.stage.share = attention_share(a, run.position);
    if (threadIdx.x < a.shape.hd / 2) shared.turns[threadIdx.x] = run.turns[threadIdx.x];
    const uint32_t number = 3 * l + 1, quads = (a.shape.H + (a.owns ? 2 * a.shape.Hkv : 0)) * a.shape.hd / 4;
    for (uint32_t q = blockIdx.x + gridDim.x * threadIdx.x; q < quads; q += gridDim.x * kTokenThreads) {
      publish4(const_cast<TaggedQuad*>(a.qkv) + q, reinterpret_cast<const float4*>(run.product)[q],
               stage_tag(run.serial, number));
    }
    token_barrier();
    place = attend(shared.stage, shared.call, barriers, place);
    token_barrier();
    combine_attention(a, shared.stage.share, run.serial, number + 2);
    for (uint32_t q = threadIdx.x; q < a.shape.H * a.shape.hd / 4; q += kTokenThreads) {
      const float4 v = await4(a.out + q, stage_tag(run.serial, number + 2));
      if (blockIdx.x == 0 && l + 1 == run.job.stage_count) reinterpret_cast<float4*>(run.out)[q] = v;
    }
    token_barrier();
  }
#else
  __trap();
#endif
}

// `blocks` must fit the chip together.
inline void run_token_attention(const TokenAttentionLayers& run, uint32_t blocks, cudaStream_t stream) {
  const uint32_t bytes = token_attention_test_bytes(run.job.memory);
  allow_shared_memory(token_attention_layers, bytes, "token attention");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kTokenThreads + kTokenLoaders);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, token_attention_layers, run), "token attention");
}

}  // namespace carat::cuda
