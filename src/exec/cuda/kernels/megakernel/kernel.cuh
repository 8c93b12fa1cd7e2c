#pragma once

// The token kernel (device code): see token.h. Bound by the time from the last result of a stage to the first product
// of the next, and by instructions; weights stream at the pace of the memory where a stage is long enough
// (docs/performance.md).
//
// Compiled once for each MegakernelBuild, in a file of its own: what a model does not need is not there, so that what
// it needs lies closer together, and fewer questions are asked on the way from stage to stage.
#include "exec/cuda/kernels/megakernel/attention.cuh"
#include "exec/cuda/kernels/megakernel/megakernel.h"
#include "exec/cuda/kernels/megakernel/ple.cuh"
#include "exec/cuda/kernels/moe/moe_route.cuh"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {

// Whether it reads the residual stream after a stage that has absorbed everything (the first stage has nothing to).
constexpr bool reads_again(const MegakernelProduct& product, uint32_t number) {
  return product.input == MegakernelInput::kResidual && product.router_weights == nullptr && product.in == nullptr &&
         number > 1;
}

__device__ __forceinline__ StageStart start_of(const MegakernelProduct& p, uint32_t number, uint32_t d) {
  if (p.input == MegakernelInput::kVector) return StageStart::kVector;
  if (p.input == MegakernelInput::kEights) return StageStart::kEights;
  if (p.input == MegakernelInput::kSame) return StageStart::kNothing;
  if (p.router_weights != nullptr) return StageStart::kRoutingResidual;
  if (reads_again(p, number)) return StageStart::kAgain;
  const bool wide = d > kMegakernelThreads * kMegakernelThreadColumns;
  if (p.experts != nullptr) return StageStart::kMixture;
  return wide ? StageStart::kPromptResidual : StageStart::kResidual;
}

// What this block does in a stage.
template <MegakernelBuild kBuild>
__device__ __forceinline__ void decide(WindowStage& now, const MegakernelJob& job, uint32_t position) {
  uint32_t product = kNoProduct, flags = 0;
  StageStart start = StageStart::kPerLayerInputs;
  if (now.stage.kind == MegakernelKind::kProduct) {
    const MegakernelProduct& p = now.stage.product;
    now.list = task_list(p);
    now.layout = slot_layout(p, packed_bytes_in<kBuild.packings | kBuild.per_layer>(p.packing));
    now.warps = is_geglu(p.output) ? job.memory.geglu_warps : job.memory.warps;
    now.turn_tasks = now.warps / p.task.cuts;
    now.turn_cuts = now.warps % p.task.cuts;
    now.cuts_inverse = (256 + p.task.cuts - 1) / p.task.cuts;
    if (p.way == MegakernelWay::kTasks) {
      start = start_of(p, now.stage.number, job.d);
      product = product_code(p.packing, task_code(p));
      if (p.output == MegakernelOutput::kGeluTimes) flags |= StageCall::kTakesFactors;
    } else {
      start = p.way == MegakernelWay::kGate ? StageStart::kPerLayerGate : StageStart::kPerLayerProject;
    }
  } else if (now.stage.kind != MegakernelKind::kPerLayerInputs) {
    now.share = attention_share(now.stage.attention, position);
    start = now.stage.kind == MegakernelKind::kAttention ? attention_start(now.stage.attention, now.share)
            : now.share.splits > 1                       ? StageStart::kCombine
                                                         : StageStart::kNothing;
    if (start == StageStart::kNothing) flags |= StageCall::kIdle;
  }
  now.call.bits = static_cast<uint32_t>(start) | product << 8 | flags;
}

// Asks for what attention will read itself, stages ahead of it: since the last token, all weights have passed through
// the L2 cache.
__device__ __forceinline__ void prefetch_cache(const WindowStage& now, uint32_t sequence, uint32_t lane) {
  const StageStart start = now.call.start();
  if (start != StageStart::kAttention256 && start != StageStart::kAttention512) return;
  const MegakernelAttention& a = now.stage.attention;
  const AttentionShare& share = now.share;
  const KvRows<__half> rows = kv_halves(a.kv, KvHead(a.shape, sequence, share.kv_head), a.shape.hd);
#pragma unroll 1
  for (uint32_t tile = share.first; tile < share.end; ++tile) {
    const uint32_t last = last_row(share, tile);
#pragma unroll 1
    for (uint32_t row = lane; row <= last; row += 32) {
      const uint32_t i = tile * kMegakernelTile + row;
      prefetch_l2_bulk(rows.row(false, share.visible, i), a.shape.hd * 2);
      prefetch_l2_bulk(rows.row(true, share.visible, i), a.shape.hd * 2);
    }
  }
  const float* norm = lane == 0 ? a.q_norm : a.k_norm;
  if (lane < (a.owns ? 2 : 1)) prefetch_l2_bulk(norm, a.shape.hd * 4);
}

// Chooses the experts of a stage, in every block alike, while the others are at the stage before, which makes the
// logits. The warps that copy wait for it.
inline __device__ __noinline__ void route(const MegakernelStage& stage) {
  MegakernelShared& shared = megakernel_shared();
  const MegakernelProduct& p = stage.product;
  const uint32_t experts_used = shared.experts_used, lane = threadIdx.x % 32;
  const uint32_t tag = version_tag(shared.serial, p.router_version);
  const auto* begun = static_cast<const volatile uint32_t*>(&shared.begun);
  while (*begun + 1 < stage.number) __nanosleep(50);
  const auto announce = [&](uint32_t& what) {
    __threadfence_block();
    __syncwarp();
    if (lane == 0) *static_cast<volatile uint32_t*>(&what) = stage.number;
  };
  // All of a lane's are asked for together.
  uint64_t words[kLaneExperts];
  bool there;
  do {
    there = true;
#pragma unroll
    for (uint32_t i = 0; i < kLaneExperts; ++i) {
      if (lane + 32 * i < p.experts_total) words[i] = load_word(p.router + lane + 32 * i);
    }
#pragma unroll
    for (uint32_t i = 0; i < kLaneExperts; ++i) {
      if (lane + 32 * i < p.experts_total) there = there && static_cast<uint32_t>(words[i] >> 32) == tag;
    }
  } while (!there);
  __syncwarp();
  float logits[kLaneExperts];
#pragma unroll
  for (uint32_t i = 0; i < kLaneExperts; ++i) logits[i] = __uint_as_float(static_cast<uint32_t>(words[i]));
  const float weight = choose_experts(logits, p.experts_total, experts_used, p.expert_scale, [&](uint32_t expert) {
    if (lane < experts_used) shared.expert_ids[lane] = expert;
    announce(shared.routed);
  });
  if (lane < experts_used) shared.expert_weights[lane] = weight;
  announce(shared.weighed);
}

// The warp that describes: stages are brought to the window ahead of their use, with this block's part of them. Slot
// index % kMegakernelWindow may be overwritten once everyone has left stage index - kMegakernelWindow. A stage with
// nothing to do has no barrier, and two of them may follow one another (attention and what puts it together): whoever
// begins a stage has met all others in one of the three before it, so they have left the fourth.
constexpr uint32_t kDescribedAhead = kMegakernelWindow - 5;
template <MegakernelBuild kBuild>
__device__ void describe_stages(const MegakernelJob& job) {
  MegakernelShared& shared = megakernel_shared();
  static_assert(sizeof(MegakernelStage) % 16 == 0 && sizeof(MegakernelStage) <= 32 * 16);
  const uint32_t lane = threadIdx.x % 32, position = shared.position;
  const auto* begun = static_cast<const volatile uint32_t*>(&shared.begun);
#pragma unroll 1
  for (uint32_t index = 0; index < job.stage_count; ++index) {
    uint4 words = make_uint4(0, 0, 0, 0);
    if (lane < sizeof(MegakernelStage) / 16) words = reinterpret_cast<const uint4*>(job.stages + index)[lane];
    while (*begun + kDescribedAhead < index) __nanosleep(50);
    WindowStage& to = shared.window[index % kMegakernelWindow];
    if (lane < sizeof(MegakernelStage) / 16) reinterpret_cast<uint4*>(&to.stage)[lane] = words;
    __syncwarp();
    if (lane == 0) decide<kBuild>(to, job, position);
    __syncwarp();
    prefetch_cache(to, shared.sequence, lane);
    if (lane == 0) mbarrier_arrive(shared_address(shared.described + index % kMegakernelWindow));
    if constexpr (kBuild.experts) {
      if (to.stage.kind == MegakernelKind::kProduct && to.stage.product.expert_rows != 0) route(to.stage);
    }
  }
}

template <MegakernelBuild kBuild>
__device__ __noinline__ void begin_megakernel(const MegakernelJob& job) {
  MegakernelShared& shared = megakernel_shared();
  const uint64_t cell = static_cast<uint64_t>(shared.token) * job.embedding.steps;
  const Eight scale = same_eight(job.embedding_scale);
  for (uint32_t c = 8 * threadIdx.x; c < job.d; c += 8 * kMegakernelThreads) {
    const Eight entry = unpack_eight<kBuild.packings>(job.embedding, cell + c / kStep, c % kStep);
    write_eight(megakernel_stream() + c, scaled(entry, 1.0f, scale));
  }
  for (uint32_t j = threadIdx.x; j < job.pairs; j += kMegakernelThreads) {
    // Range reduction in double: an fp32 product would be off by 0.008 radians at position 131072.
    const double rounds = static_cast<double>(shared.position) * job.frequencies[j] * 0.15915494309189535;
    const float angle = static_cast<float>((rounds - rint(rounds)) * 6.283185307179586);
    float s, c;
    sincosf(angle, &s, &c);
    shared.turns[j] = make_float2(c, s);
  }
}

// A warp takes a layer's slice, eight columns a lane. The token's entries of the table are there before their input is.
template <MegakernelBuild kBuild>
__device__ __noinline__ void per_layer_inputs(uint32_t stage) {
  static_assert(kMegakernelMaxPle == 8 * 32);
  const MegakernelShared& shared = megakernel_shared();
  const MegakernelPerLayer& job = shared.window[stage].stage.per_layer;
  const uint32_t column = 8 * (threadIdx.x % 32), P = job.P;
  const uint64_t first_cell = static_cast<uint64_t>(shared.token) * job.table.steps;
  const bool mine = column < P;
#pragma unroll 1
  for (uint32_t slice = blockIdx.x + gridDim.x * (threadIdx.x / 32); slice < job.slices;
       slice += gridDim.x * kMegakernelWarps) {
    const uint32_t at = slice * P + column;
    Eight entry = {}, norm = {}, v = {};
    if (mine) {
      entry = unpack_eight<kBuild.packings>(job.table, first_cell + at / kStep, at % kStep);
      norm = read_eight(job.norm + column);
      EightWords words;
      words.load(job.projection + at);
      v = words.await(job.projection + at, version_tag(shared.serial, job.projection_version));
    }
    __syncwarp();
    v = scaled(v, job.projection_scale, same_eight(1.0f));
    const float factor = rsqrtf(warp_sum(dot_of(v, v)) / static_cast<float>(P) + shared.eps);
    if (!mine) continue;
    const Eight both = joined(scaled(v, factor, norm), job.table_scale, entry, 0.70710678118654752f);
    const uint32_t tag = version_tag(shared.serial, job.version);
    publish4(job.out + at, both.low, tag);
    publish4(job.out + at + 4, both.high, tag);
  }
}

inline __device__ __noinline__ void take_factors(uint32_t stage) {
  MegakernelShared& shared = megakernel_shared();
  const WindowStage& now = shared.window[stage];
  const MegakernelProduct& p = now.stage.product;
  // The last warps have the least to do otherwise.
  const uint32_t row = kMegakernelThreads - 1 - threadIdx.x;
  if (row >= now.list.count * p.task.rows) return;
  shared.factors[row] =
      await(p.factors + now.list.first * p.task.rows + row, version_tag(shared.serial, p.factors_version));
}

// The activations of a product. What is common comes first.
template <MegakernelBuild kBuild>
__device__ __forceinline__ void prepare(StageStart start, uint32_t stage) {
  if (start == StageStart::kVector) return vector_activations<kBuild>(stage);
  if constexpr (kBuild.narrow) {
    if (start == StageStart::kResidual) return residual_activations<kBuild, 1, false>(stage);
  }
  if constexpr (kBuild.wide) {
    if (start == StageStart::kPromptResidual)
      return residual_activations<kBuild, kMegakernelStreamPieces, false>(stage);
  }
  if (start == StageStart::kEights) return eight_activations<kBuild>(stage);
  if constexpr (kBuild.experts) {
    if (start == StageStart::kRoutingResidual) return residual_activations<kBuild, 1, true>(stage);
    if (start == StageStart::kMixture) return mixture_activations<kBuild>(stage);
  }
  if (start == StageStart::kAgain) return stream_activations<kBuild>(stage);
}

// Stages that are no products.
template <MegakernelBuild kBuild>
__device__ __forceinline__ void other_stage(StageStart start, uint32_t stage) {
  if constexpr (kBuild.per_layer != 0) {
    if (start == StageStart::kPerLayerGate) return ple_gate<kBuild.per_layer>(stage);
    if (start == StageStart::kPerLayerProject) return ple_project<kBuild.per_layer>(stage);
  }
  if (start == StageStart::kCombine) return combine_shares(stage);
  if (start == StageStart::kPerLayerInputs) return per_layer_inputs<kBuild>(stage);
  attend(start, stage);
}

// The product of a stage, by the code made for its packing, the rows of a task and what becomes of its results.
template <Packing kPacking, TaskResults kResults>
__device__ __forceinline__ void multiply_rows(uint32_t rows, uint32_t stage) {
  if (rows == kTwoRows) return multiply_tasks<kPacking, 2, false, kResults>(stage);
  if (rows == kFourRows) return multiply_tasks<kPacking, 4, false, kResults>(stage);
  if (rows == kEightRows) return multiply_tasks<kPacking, 8, false, kResults>(stage);
  if constexpr (kResults != kGegluResults) {  // which take two rows at least
    if (rows == kOneRow) return multiply_tasks<kPacking, 1, false, kResults>(stage);
  }
}
template <MegakernelBuild kBuild, Packing kPacking>
__device__ __forceinline__ void multiply_code(uint32_t code, uint32_t stage) {
  if (code < kRowCodes) return multiply_rows<kPacking, kWordResults>(code, stage);
  if (code < 2 * kRowCodes) return multiply_rows<kPacking, kGegluResults>(code - kRowCodes, stage);
  if constexpr (kBuild.experts && !is_float_packing(kPacking)) {
    if (code == kExpertTasks) return multiply_tasks<kPacking, 2, true, kWordResults>(stage);
  }
  multiply_rows<kPacking, kOtherResults>(code - 2 * kRowCodes, stage);
}
// Whether `product` is of this packing, where those before it have been asked for: then it is done.
template <MegakernelBuild kBuild, Packing kPacking>
__device__ __forceinline__ bool multiply_packed(uint32_t product, uint32_t stage) {
  constexpr PackingSet kBefore = packing_set({kPacking}) - 1, kLater = kBuild.packings & ~(kBefore << 1 | 1);
  if constexpr (contains(kBuild.packings, kPacking)) {
    if (kLater != 0 && product >= product_code(kPacking, kTaskCodes)) return false;
    multiply_code<kBuild, kPacking>(product - product_code(kPacking, 0), stage);
    return true;
  }
  return false;
}
template <MegakernelBuild kBuild>
__device__ __forceinline__ void multiply(uint32_t product, uint32_t stage) {
  if (multiply_packed<kBuild, Packing::kQ8>(product, stage)) return;
  if (multiply_packed<kBuild, Packing::kQ4>(product, stage)) return;
  if (multiply_packed<kBuild, Packing::kQ4K>(product, stage)) return;
  if (multiply_packed<kBuild, Packing::kQ5K>(product, stage)) return;
  if (multiply_packed<kBuild, Packing::kQ6K>(product, stage)) return;
  if (multiply_packed<kBuild, Packing::kF16>(product, stage)) return;
  if (multiply_packed<kBuild, Packing::kBF16>(product, stage)) return;
  multiply_packed<kBuild, Packing::kF32>(product, stage);
}

// The next stage of this warp. Where it stands is in shared memory: attention takes all registers there are.
template <MegakernelBuild kBuild>
__device__ __noinline__ void run_stage() {
  MegakernelShared& shared = megakernel_shared();
  volatile uint32_t& behind = stages_behind();
  const uint32_t index = behind, stage = index % kMegakernelWindow;
  __syncwarp();
  write_for_warp(behind, index + 1);
  mbarrier_wait(shared_address(shared.described + stage), index / kMegakernelWindow & 1);
  if (threadIdx.x == 0) {
    *static_cast<volatile uint32_t*>(&shared.begun) = index + 1;
    if (shared.trace != nullptr) shared.trace[index] = clock64();
  }
  const StageCall call = shared.window[stage].call;
  if (call.has(StageCall::kIdle)) return;
  // Some may come from a product, whose activations lie where the next ones will. To wait for other blocks before that
  // would only take bandwidth from them.
  compute_barrier();
  if (call.product() == kNoProduct) return other_stage<kBuild>(call.start(), stage);
  if (call.has(StageCall::kTakesFactors)) take_factors(stage);
  prepare<kBuild>(call.start(), stage);
  multiply<kBuild>(call.product(), stage);
}

// Registers of a thread that computes and of one that loads or describes; together what a block begins with.
inline constexpr int kComputeRegisters = 104, kLoaderRegisters = 64;
static_assert(kMegakernelThreads * kComputeRegisters + kMegakernelLoaders * kLoaderRegisters <=
              (kMegakernelThreads + kMegakernelLoaders) * 96);

// kIndex: of kMegakernelBuilds.
template <size_t kIndex>
__global__ void __launch_bounds__(kMegakernelThreads + kMegakernelLoaders, 1)
    megakernel_kernel(const __grid_constant__ MegakernelJob job) {
  [[maybe_unused]] constexpr MegakernelBuild kBuild = kMegakernelBuilds[kIndex];
#if defined(CARAT_MEGAKERNEL_INSTRUCTIONS)
  MegakernelShared& shared = megakernel_shared();
  const uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x == kMegakernelThreads) {
    shared.begin(job, carat_megakernel_shared);
    shared.token = static_cast<uint32_t>(*job.control.token);
    shared.position = *job.control.position;
    shared.sequence = *job.control.sequence;
    shared.serial = *job.control.serial;
  }
  __syncthreads();
  if (warp >= kMegakernelWarps) {
    setmaxnreg_dec<kLoaderRegisters>();
    const uint32_t loader = warp - kMegakernelWarps;
    if (loader < job.memory.loaders) {
      WeightLoader<kBuild>(shared.slots_at, Ring(shared.ring), job.memory, shared.expert_ids, loader)
          .run(job, shared.loading[loader], &shared.routed, &shared.begun, shared.position, shared.sequence);
    } else if (loader == kMegakernelLoaderWarps) {
      describe_stages<kBuild>(job);
    }
    return;
  }
  setmaxnreg_inc<kComputeRegisters>();
  begin_megakernel<kBuild>(job);
  do {
    run_stage<kBuild>();
  } while (stages_behind() < job.stage_count);
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  // Every other block has read the serial: this one could not have come so far without their results.
  *job.control.serial = shared.serial + 1;
  if (shared.trace != nullptr) shared.trace[shared.stage_count] = clock64();
#else
  __trap();  // the plan chooses this kernel where the copies it uses exist
#endif
}

template <size_t kIndex>
void run_megakernel_build(const MegakernelJob& job, uint32_t blocks, const LaunchConfig& launch) {
  const auto kernel = megakernel_kernel<kIndex>;
  const size_t bytes = job.memory.total(job.d);
  allow_shared_memory(kernel, bytes, "token");
  LaunchConfig together = launch;
  together.cooperative = true;
  launch_kernel("token", kernel, dim3(blocks), dim3(kMegakernelThreads + kMegakernelLoaders), bytes, together, job);
}

}  // namespace carat::cuda
