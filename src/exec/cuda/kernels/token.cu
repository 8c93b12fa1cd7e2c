// The token kernel: see token.h. Bound by the time from the last result of a stage to the first product of the next,
// and by instructions; weights stream at the pace of the memory where a stage is long enough (docs/performance-log.md).
#include "exec/cuda/kernels/token.h"

#include "exec/cuda/kernels/moe_route.cuh"
#include "exec/cuda/kernels/token_attention.cuh"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {
namespace {

// Shared memory of a block besides ring, region, partial sums and residual stream.
struct TokenShared {
  uint64_t barriers[2 * kTokenMaxSlots];
  uint64_t described[kTokenWindow];
  WindowStage window[kTokenWindow];
  TokenStage loading[kTokenLoaderWarps][2];  // of the warps that load weights
  alignas(16) float sums[8 * kTokenWarps];
  alignas(16) float4 factors[kTokenMaxPle / kTokenRows];
  float2 turns[kTokenMaxPairs];
  alignas(16) uint32_t staging[kTokenWarps][4][12];  // runs on their way out, four a warp
  uint32_t expert_ids[kTokenMaxExpertsUsed];
  float expert_weights[kTokenMaxExpertsUsed];
  uint32_t token, position, sequence, serial;
  AttentionCall attention;
  uint32_t routed;  // the stage whose experts were chosen last
  uint32_t begun;   // stages begun
};

static_assert(sizeof(TokenShared) <= kTokenSharedBytes && sizeof(TokenStage) <= kTokenStageBytes);

// The warp that describes: stages are brought to the window ahead of their use, with this block's part of them. Slot
// index % kTokenWindow may be overwritten once stage index - 2 has begun: everyone has left index - 4 by then.
// (Unused where the kernel below has no body: older architectures.)
[[maybe_unused]] __device__ void describe_stages(const TokenJob& job, TokenShared& shared) {
  static_assert(sizeof(TokenStage) % 16 == 0 && sizeof(TokenStage) <= 32 * 16 && kTokenWindow == 4);
  const uint32_t lane = threadIdx.x % 32, position = shared.position;
  const auto* begun = static_cast<const volatile uint32_t*>(&shared.begun);
#pragma unroll 1
  for (uint32_t index = 0; index < job.stage_count; ++index) {
    uint4 words = make_uint4(0, 0, 0, 0);
    if (lane < sizeof(TokenStage) / 16) words = reinterpret_cast<const uint4*>(job.stages + index)[lane];
    while (*begun + 2 <= index) __nanosleep(50);
    WindowStage& to = shared.window[index % kTokenWindow];
    if (lane < sizeof(TokenStage) / 16) reinterpret_cast<uint4*>(&to.stage)[lane] = words;
    __syncwarp();
    if (lane != 0) continue;
    if (to.stage.kind == TokenKind::kProduct) to.list = task_list(to.stage.product);
    if (to.stage.kind == TokenKind::kAttention || to.stage.kind == TokenKind::kCombine) {
      to.share = attention_share(to.stage.attention, position);
    }
    barrier_arrive(shared_address(shared.described + index % kTokenWindow));
  }
}

[[maybe_unused]] __device__ void begin_token(const TokenJob& job, float* x, TokenShared& shared, uint32_t token,
                                             uint32_t position) {
  const uint64_t cell = static_cast<uint64_t>(token) * job.embedding.steps;
  for (uint32_t c = threadIdx.x; c < job.d; c += kTokenThreads) {
    x[c] = unpack_value(job.embedding, cell + c / kStep, c % kStep) * job.embedding_scale;
  }
  for (uint32_t j = threadIdx.x; j < job.pairs; j += kTokenThreads) {
    // Range reduction in double: an fp32 product would be off by 0.008 radians at position 131072.
    const double rounds = static_cast<double>(position) * job.frequencies[j] * 0.15915494309189535;
    const float angle = static_cast<float>((rounds - rint(rounds)) * 6.283185307179586);
    float s, c;
    sincosf(angle, &s, &c);
    shared.turns[j] = make_float2(c, s);
  }
}

// Decides the experts of this layer, in every block alike.
__device__ void route(const TokenProduct& p, const TokenJob& job, uint32_t serial, TokenShared& shared) {
  if (threadIdx.x >= 32) return;
  const uint32_t lane = threadIdx.x;
  float logits[kMaxExperts / 32];
#pragma unroll
  for (uint32_t i = 0; i < kMaxExperts / 32; ++i) {
    const uint32_t e = lane + 32 * i;
    logits[i] = e < p.experts_total ? await(p.router + e, stage_tag(serial, p.router_stage)) : -INFINITY;
  }
  const ExpertChoice mine = choose_experts(logits, p.experts_total, job.experts_used, p.expert_scale);
  if (lane < job.experts_used) {
    shared.expert_ids[lane] = mine.expert;
    shared.expert_weights[lane] = mine.weight;
  }
}

// A warp takes a layer's slice.
__device__ void per_layer_inputs(const TokenPerLayer& job, uint32_t token, float eps, uint32_t serial,
                                 uint32_t number) {
  const uint32_t lane = threadIdx.x % 32;
  const uint64_t first_cell = static_cast<uint64_t>(token) * job.table.steps;
#pragma unroll 1
  for (uint32_t slice = blockIdx.x + gridDim.x * (threadIdx.x / 32); slice < job.slices;
       slice += gridDim.x * kTokenWarps) {
    const TaggedQuad* projection = job.projection + slice * job.P / 4;
    const auto part = [&](uint32_t quad) {
      return scaled(await4(projection + quad, stage_tag(serial, job.projection_stage)), job.projection_scale,
                    make_float4(1.0f, 1.0f, 1.0f, 1.0f));
    };
    float squares = 0.0f;
#pragma unroll 1
    for (uint32_t quad = lane; 4 * quad < job.P; quad += 32) squares += dot4(part(quad));
    const float factor = rsqrtf(warp_sum(squares) / static_cast<float>(job.P) + eps);
#pragma unroll 1
    for (uint32_t quad = lane; 4 * quad < job.P; quad += 32) {
      const float4 v = scaled(part(quad), factor, *reinterpret_cast<const float4*>(job.norm + 4 * quad));
      float out[4] = {v.x, v.y, v.z, v.w};
#pragma unroll 1
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t column = slice * job.P + 4 * quad + e;
        const float entry = unpack_value(job.table, first_cell + column / kStep, column % kStep) * job.table_scale;
        out[e] = (out[e] + entry) * 0.70710678118654752f;
      }
      publish4(job.out + slice * job.P / 4 + quad, make_float4(out[0], out[1], out[2], out[3]),
               stage_tag(serial, number));
    }
  }
}

// Everything but the products.
[[maybe_unused]] __device__ __forceinline__ void other_stage(const WindowStage& now, const TokenJob& job,
                                                             const TokenShared& shared, uint32_t serial) {
  const TokenStage& stage = now.stage;
  if (stage.kind == TokenKind::kPerLayerInputs) {
    per_layer_inputs(stage.per_layer, shared.token, job.eps, serial, stage.number);
    return;
  }
  combine_attention(stage.attention, now.share, serial, stage.number);
}

[[maybe_unused]] __device__ __forceinline__ void prepare_activations(const WindowStage& now, const TokenJob& job,
                                                                     unsigned char* region, float* x,
                                                                     TokenShared& shared, uint32_t serial) {
  const TokenProduct& p = now.stage.product;
  if (p.router != nullptr) route(p, job, serial, shared);
  if (p.output == TokenOutput::kGeluTimes) {
    // The last warps have the least to do otherwise.
    const uint32_t group = kTokenThreads - 1 - threadIdx.x;
    if (group < now.list.groups) {
      shared.factors[group] = await4(p.factors + now.list.first_group + group, stage_tag(serial, p.factors_stage));
    }
  }
  if (p.input == TokenInput::kResidual) {
    residual_activations(p, job.d, job.eps, serial, x, shared.sums, region);
  } else if (p.input == TokenInput::kVector) {
    vector_activations(p, serial, region);
  } else if (p.input == TokenInput::kRuns) {
    run_activations(p, serial, region);
  }
}

// Calls multiply<packing>().
template <typename Multiply>
__device__ __forceinline__ void with_packing(Packing packing, const Multiply& multiply) {
  switch (packing) {
    case Packing::kQ8:
      return multiply.template operator()<Packing::kQ8>();
    case Packing::kQ4:
      return multiply.template operator()<Packing::kQ4>();
    case Packing::kQ4K:
      return multiply.template operator()<Packing::kQ4K>();
    case Packing::kQ5K:
      return multiply.template operator()<Packing::kQ5K>();
    case Packing::kQ6K:
      return multiply.template operator()<Packing::kQ6K>();
    case Packing::kF16:
      return multiply.template operator()<Packing::kF16>();
    case Packing::kBF16:
      return multiply.template operator()<Packing::kBF16>();
    case Packing::kF32:
      return multiply.template operator()<Packing::kF32>();
  }
}

// Registers of a thread that computes and of one that loads or describes; together what a block begins with.
inline constexpr int kComputeRegisters = 104, kLoaderRegisters = 64;
static_assert(kTokenThreads * kComputeRegisters + kTokenLoaders * kLoaderRegisters <=
              (kTokenThreads + kTokenLoaders) * 96);

__global__ void __launch_bounds__(kTokenThreads + kTokenLoaders, 1) token_kernel(const __grid_constant__ TokenJob job) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char slots[];
  unsigned char* region = slots + job.memory.slots * job.memory.slot_bytes;
  auto* partial = reinterpret_cast<float*>(region + job.memory.region_bytes);
  float* x = partial + job.memory.partial_bytes / sizeof(float);
  TokenShared& shared = *reinterpret_cast<TokenShared*>(x + job.d);
  const RingBarriers barriers(shared.barriers);
  const uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x == kTokenThreads) {
    barriers.init(job.memory.slots);
    for (uint64_t& described : shared.described) barrier_init(shared_address(&described), 1);
    barrier_init_fence();
    shared.token = static_cast<uint32_t>(*job.control.token);
    shared.position = *job.control.position;
    shared.sequence = *job.control.sequence;
    shared.serial = *job.control.serial;
    shared.routed = shared.begun = 0;
    shared.attention = {region,  shared.turns,          shared.position,       shared.sequence, shared.serial,
                        job.eps, shared_address(slots), job.memory.slot_bytes, job.memory.slots};
  }
  __syncthreads();
  if (warp >= kTokenWarps) {
    give_registers<kLoaderRegisters>();
    const uint32_t loader = warp - kTokenWarps;
    if (loader < kTokenLoaderWarps) {
      WeightLoader(shared_address(slots), barriers, job.memory, shared.expert_ids, loader)
          .run(job, shared.loading[loader], &shared.routed, &shared.begun, shared.position, shared.sequence);
    } else {
      describe_stages(job, shared);
    }
    return;
  }
  take_registers<kComputeRegisters>();
  RingPlace place;
#pragma unroll 1
  for (uint32_t index = 0; index < job.stage_count; ++index) {
    const WindowStage& now = shared.window[index % kTokenWindow];
    barrier_wait(shared_address(shared.described + index % kTokenWindow), index / kTokenWindow & 1);
    const uint32_t serial = shared.serial;
    if (threadIdx.x == 0) *static_cast<volatile uint32_t*>(&shared.begun) = index + 1;
    if (job.trace != nullptr && blockIdx.x == 0 && threadIdx.x == 0) job.trace[index] = clock64();
    if (now.stage.kind == TokenKind::kAttention) {
      place = attend(now, shared.attention, barriers, place);
      token_barrier();
      continue;
    }
    if (now.stage.kind != TokenKind::kProduct) {
      other_stage(now, job, shared, serial);
      token_barrier();
      continue;
    }
    const TokenProduct& p = now.stage.product;
    if (index == 0) {
      begin_token(job, x, shared, shared.token, shared.position);
      token_barrier();
    }
    prepare_activations(now, job, region, x, shared, serial);
    token_barrier();
    if (p.router != nullptr && threadIdx.x == 0) {
      __threadfence_block();
      *static_cast<volatile uint32_t*>(&shared.routed) = now.stage.number;
    }
    with_packing(p.packing, [&]<Packing kPacking>() {
      place = multiply_tasks<kPacking>(now, slots, barriers, job.memory.slots, job.memory.slot_bytes, region, partial,
                                       place);
    });
    token_barrier();
    publish_results(now, partial, shared.factors, shared.expert_weights, shared.staging, serial, job);
  }
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  // Every other block has read the serial: this one could not have come so far without their results.
  *job.control.serial = shared.serial + 1;
  if (job.trace != nullptr) job.trace[job.stage_count] = clock64();
#else
  __trap();  // the plan chooses this kernel where the copies it uses exist
#endif
}

}  // namespace

void run_token(const TokenJob& job, uint32_t blocks, const Launch& how) {
  const size_t bytes = job.memory.total(job.d);
  allow_shared_memory(token_kernel, bytes, "token");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kTokenThreads + kTokenLoaders);
  config.dynamicSmemBytes = bytes;
  config.stream = how.stream;
  // Blocks wait for one another: all must be on the chip at once.
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, token_kernel, job), "token");
}

}  // namespace carat::cuda
