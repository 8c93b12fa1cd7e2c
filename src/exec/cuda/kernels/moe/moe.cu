// Mixture of experts: routing, and the expert products of decode. Routing is bound by latency; the decode products by
// the weight bytes of the selected experts.
#include "exec/cuda/kernels/gemv/activation.cuh"
#include "exec/cuda/kernels/gemv/packings.cuh"
#include "exec/cuda/kernels/moe/moe.h"
#include "exec/cuda/kernels/moe/moe_route.cuh"

namespace carat::cuda {
namespace {

// One warp a row; each lane holds experts lane, lane + 32, ...
__global__ void moe_route_kernel(const float* logits, const float* expert_scale, uint32_t rows, uint32_t experts,
                                 uint32_t used, uint32_t* ids, float* weights) {
  wait_for_predecessor();
  release_successor();
  const uint32_t row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* from = logits + static_cast<uint64_t>(row) * experts;
  float of_lane[kLaneExperts];
#pragma unroll
  for (uint32_t i = 0; i < kLaneExperts; ++i) of_lane[i] = lane + 32 * i < experts ? from[lane + 32 * i] : -INFINITY;
  const uint64_t to = static_cast<uint64_t>(row) * used + lane;
  const float weight = choose_experts(of_lane, experts, used, expert_scale, [&](uint32_t expert) {
    if (lane < used) ids[to] = expert;
  });
  if (lane < used) weights[to] = weight;
}

// Dot product of one weight row (given by its first cell) with one quantised row, over the eight lanes of a row group.
template <typename Dot>
__device__ float expert_dot(const PackedView& w, uint64_t first_cell, const uint32_t* words, const BlockMeta* meta,
                            const float* values, uint32_t lane8) {
  float sum = 0.0f;
#pragma unroll 2
  for (uint32_t step = 0; step < w.steps; ++step) {
    typename Dot::Regs regs;
    Dot::load(w, first_cell + step, lane8, regs);
    const LaneActivation a{reinterpret_cast<const uint4*>(words + step * kStepWords) + lane8, meta + step * 8 + lane8,
                           Dot::kFloat ? values + step * kStep : nullptr};
    sum += lane_dot<Dot>(regs, a, lane8);
  }
#pragma unroll
  for (int offset = 4; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum;
}

__device__ float expert_dot_any(const PackedView& w, uint64_t row, const uint32_t* words, const BlockMeta* meta,
                                const float* values, uint32_t lane8) {
  const uint64_t cell = row * w.steps;
  switch (w.packing) {
    case Packing::kQ8:
      return expert_dot<DotQ8>(w, cell, words, meta, values, lane8);
    case Packing::kQ4:
      return expert_dot<DotQ4>(w, cell, words, meta, values, lane8);
    case Packing::kQ4K:
      return expert_dot<DotQ4K>(w, cell, words, meta, values, lane8);
    case Packing::kQ5K:
      return expert_dot<DotQ5K>(w, cell, words, meta, values, lane8);
    case Packing::kQ6K:
      return expert_dot<DotQ6K>(w, cell, words, meta, values, lane8);
    case Packing::kF16:
      return expert_dot<DotF16>(w, cell, words, meta, values, lane8);
    case Packing::kBF16:
      return expert_dot<DotBF16>(w, cell, words, meta, values, lane8);
    default:
      return expert_dot<DotF32>(w, cell, words, meta, values, lane8);
  }
}

// Grid (tiles of 32 columns of F, used, rows).
__global__ void __launch_bounds__(256, 3)
    moe_gate_up_kernel(const __grid_constant__ ExpertRows gate, const __grid_constant__ ExpertRows up, uint32_t F,
                       const __grid_constant__ QuantisedRows x, const uint32_t* ids, uint32_t used,
                       const __grid_constant__ QuantisedRows acts, uint32_t act_steps) {
  __shared__ float tile[32];
  wait_for_predecessor();
  release_successor();
  const uint32_t row = blockIdx.z, slot = blockIdx.y, steps = gate.weights.steps;
  const uint64_t expert = ids[row * used + slot];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t column = blockIdx.x * 32 + warp * 4 + lane / 8;
  const uint32_t safe = min(column, F - 1);
  const uint32_t* words = x.words + static_cast<uint64_t>(row) * steps * kStepWords;
  const BlockMeta* meta = x.meta + static_cast<uint64_t>(row) * steps * 8;
  const float* values = x.values == nullptr ? nullptr : x.values + static_cast<uint64_t>(row) * steps * kStep;
  const float g =
      expert_dot_any(gate.weights, expert * gate.stride + gate.offset + safe, words, meta, values, lane % 8);
  const float u = expert_dot_any(up.weights, expert * up.stride + up.offset + safe, words, meta, values, lane % 8);
  if (lane % 8 == 0) tile[warp * 4 + lane / 8] = column < F ? gelu(g) * u : 0.0f;
  __syncthreads();
  if (warp != 0) return;

  const uint64_t first = (static_cast<uint64_t>(row) * used + slot) * act_steps;
  quantise_half_warp(tile[lane], blockIdx.x * 32 + lane, true, acts.words + first * kStepWords,
                     acts.meta + first * kStepBlocks, acts.values == nullptr ? nullptr : acts.values + first * kStep);
}

// Grid (d / 32, rows): a warp computes four outputs, all experts of the row after one another.
__global__ void __launch_bounds__(256, 3)
    moe_down_kernel(const __grid_constant__ PackedView down, uint32_t d, const __grid_constant__ QuantisedRows acts,
                    const uint32_t* ids, const float* weights, uint32_t used, float* out) {
  wait_for_predecessor();
  release_successor();
  const uint32_t row = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = down.steps;
  const uint32_t column = blockIdx.x * 32 + warp * 4 + lane / 8;
  const uint32_t safe = min(column, d - 1);
  float sum = 0.0f;
  for (uint32_t slot = 0; slot < used; ++slot) {
    const uint64_t act = static_cast<uint64_t>(row) * used + slot;
    const uint64_t expert = ids[act];
    sum += weights[act] *
           expert_dot_any(down, expert * d + safe, acts.words + act * steps * kStepWords, acts.meta + act * steps * 8,
                          acts.values == nullptr ? nullptr : acts.values + act * steps * kStep, lane % 8);
  }
  if (lane % 8 == 0 && column < d) out[static_cast<uint64_t>(row) * d + column] = sum;
}

}  // namespace

void moe_route(const float* logits, const float* expert_scale, uint32_t rows, uint32_t experts, uint32_t used,
               uint32_t* ids, float* weights, const LaunchConfig& launch) {
  launch_kernel("moe_route", moe_route_kernel, dim3((rows + 3) / 4), dim3(128), 0, launch, logits, expert_scale, rows,
                experts, used, ids, weights);
}

void moe_gate_up(const ExpertRows& gate, const ExpertRows& up, uint32_t F, const QuantisedRows& x, const uint32_t* ids,
                 uint32_t rows, uint32_t used, const QuantisedRows& acts, const LaunchConfig& launch) {
  launch_kernel("moe_gate_up", moe_gate_up_kernel, dim3((F + 31) / 32, used, rows), dim3(256), 0, launch, gate, up, F,
                x, ids, used, acts, steps_of(F));
}

void moe_down(const PackedView& down, uint32_t d, const QuantisedRows& acts, const uint32_t* ids, const float* weights,
              uint32_t rows, uint32_t used, float* out, const LaunchConfig& launch) {
  launch_kernel("moe_down", moe_down_kernel, dim3((d + 31) / 32, rows), dim3(256), 0, launch, down, d, acts, ids,
                weights, used, out);
}

}  // namespace carat::cuda
