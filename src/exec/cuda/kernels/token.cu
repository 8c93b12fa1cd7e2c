// The token kernel: see token.h. Bound by the weight bytes; what it loses to that is the time from the last result of a
// stage to the first product of the next, as far as the weights already in flight do not cover it.
#include "exec/cuda/kernels/token.h"

#include "exec/cuda/kernels/moe_route.cuh"
#include "exec/cuda/kernels/token_attention.cuh"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {
namespace {

// Shared memory of a block besides ring, region and residual stream.
struct TokenShared {
  WindowStage window[kTokenWindow];
  alignas(16) float sums[6 * kTokenWarps];
  float2 turns[kTokenMaxPairs];
  uint32_t expert_ids[kTokenMaxExpertsUsed];
  float expert_weights[kTokenMaxExpertsUsed];
};

static_assert(sizeof(TokenShared) <= kTokenSharedBytes && sizeof(TokenStage) <= kTokenStageBytes);

// A description on its way to the window: fetched when a stage begins and put down when it ends, by one warp.
struct StageInFlight {
  uint4 words;
  __device__ void fetch(const TokenJob& job, uint32_t index) {
    static_assert(sizeof(TokenStage) % 16 == 0 && sizeof(TokenStage) <= 32 * 16);
    const uint32_t lane = threadIdx.x % 32;
    if (index < job.stage_count && lane < sizeof(TokenStage) / 16) {
      words = reinterpret_cast<const uint4*>(job.stages + index)[lane];
    }
  }
  __device__ void put(const TokenJob& job, uint32_t index, uint32_t position, WindowStage* window) const {
    if (index >= job.stage_count) return;
    WindowStage& to = window[index % kTokenWindow];
    const uint32_t lane = threadIdx.x % 32;
    if (lane < sizeof(TokenStage) / 16) reinterpret_cast<uint4*>(&to.stage)[lane] = words;
    __syncwarp();
    if (lane != 0) return;
    if (to.stage.kind == TokenKind::kProduct) to.list = task_list(to.stage.product);
    if (to.stage.kind == TokenKind::kAttention || to.stage.kind == TokenKind::kCombine) {
      to.share = attention_share(to.stage.attention, position);
    }
  }
};

__device__ void begin_token(const TokenJob& job, float* x, TokenShared& shared, uint32_t token, uint32_t position) {
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
__device__ __forceinline__ void other_stage(const WindowStage& now, const TokenJob& job, unsigned char* region,
                                            const float2* turns, uint32_t token, uint32_t position, uint32_t sequence,
                                            uint32_t serial) {
  const TokenStage& stage = now.stage;
  if (stage.kind == TokenKind::kPerLayerInputs) {
    per_layer_inputs(stage.per_layer, token, job.eps, serial, stage.number);
    return;
  }
  const TokenAttention& a = stage.attention;
  if (stage.kind == TokenKind::kCombine) {
    combine_attention(a, now.share, serial, stage.number);
  } else if (a.shape.hd == 256) {
    attend<256>(a, now.share, job, region, turns + a.first_pair, position, sequence, serial, stage.number);
  } else {
    attend<512>(a, now.share, job, region, turns + a.first_pair, position, sequence, serial, stage.number);
  }
}

template <int kPieces>
__device__ __forceinline__ void prepare_activations(const TokenProduct& p, const TokenJob& job, unsigned char* region,
                                                    float* x, TokenShared& shared, uint32_t serial) {
  const TokenActivations to = activations_at(region, p.steps);
  if (p.router != nullptr) route(p, job, serial, shared);
  if (p.input == TokenInput::kResidual) {
    residual_activations<kPieces>(p, job, serial, x, shared.sums, to);
  } else if (p.input == TokenInput::kVector) {
    vector_activations(p, serial, to);
  } else if (p.input == TokenInput::kPairs) {
    pair_activations(p, serial, shared.expert_weights, to);
  }
}

// kDepth: weight units in flight; kPieces: float4 pieces of the residual stream a thread has.
template <int kDepth, int kPieces>
__global__ void __launch_bounds__(kTokenThreads, 1) token_kernel(const __grid_constant__ TokenJob job) {
  extern __shared__ __align__(128) unsigned char memory[];
  unsigned char* region = memory + kDepth * kRingSlotBytes;
  float* x = reinterpret_cast<float*>(region + job.region_bytes);
  TokenShared& shared = *reinterpret_cast<TokenShared*>(x + job.d);
  const uint32_t warp = threadIdx.x / 32;
  const bool describes = warp == kTokenWarps - 1;

  const auto token = static_cast<uint32_t>(*job.control.token);
  const uint32_t position = *job.control.position, sequence = *job.control.sequence, serial = *job.control.serial;
  StageInFlight next;
  if (warp < kTokenStagesAhead) {
    next.fetch(job, warp);
    next.put(job, warp, position, shared.window);
  }
  __syncthreads();
  WeightRing<kDepth> ring(memory, shared.window, shared.expert_ids);
  for (uint32_t index = 0; index < job.stage_count; ++index) {
    const WindowStage& now = shared.window[index % kTokenWindow];
    ring.allow(now.stage.known_before);
    if (describes) next.fetch(job, index + kTokenStagesAhead);
    if (job.trace != nullptr && blockIdx.x == 0 && threadIdx.x == 0) job.trace[index] = clock64();
    ring.top_up();
    if (now.stage.kind != TokenKind::kProduct) {
      other_stage(now, job, region, shared.turns, token, position, sequence, serial);
      if (describes) next.put(job, index + kTokenStagesAhead, position, shared.window);
      __syncthreads();
      continue;
    }
    const TokenProduct& p = now.stage.product;
    float* partial = reinterpret_cast<float*>(region + activation_bytes(is_float_packing(p.packing), p.steps));
    if (index == 0) {
      begin_token(job, x, shared, token, position);
      __syncthreads();
    }
    prepare_activations<kPieces>(p, job, region, x, shared, serial);
    __syncthreads();
    if (p.router != nullptr) ring.allow(now.stage.known_after);
    multiply_tasks(now, ring, region, partial);
    if (describes) next.put(job, index + kTokenStagesAhead, position, shared.window);
    __syncthreads();
    publish_results(now, partial, serial, job);
  }
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  // Every other block has read the serial: this one could not have come so far without their results.
  *job.control.serial = serial + 1;
  if (job.trace != nullptr) job.trace[job.stage_count] = clock64();
}

template <int kDepth, int kPieces>
void launch_token(const TokenJob& job, uint32_t blocks, const Launch& how) {
  const size_t bytes = token_shared_bytes(kDepth, job.region_bytes, job.d);
  const auto kernel = token_kernel<kDepth, kPieces>;
  allow_shared_memory(kernel, bytes, "token");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kTokenThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = how.stream;
  // Blocks wait for one another: all must be on the chip at once.
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, job), "token");
}

}  // namespace

void run_token(const TokenJob& job, uint32_t blocks, uint32_t depth, const Launch& how) {
  // Three variants are enough: E2B to 26B-A4B in files with short and long feed-forward rows, and 31B.
  const bool wide = job.d > 2 * 4 * kTokenThreads;
  if (depth >= 5 && !wide) return launch_token<5, 2>(job, blocks, how);
  if (depth >= 4 && !wide) return launch_token<4, 2>(job, blocks, how);
  return launch_token<3, 3>(job, blocks, how);
}

}  // namespace carat::cuda
