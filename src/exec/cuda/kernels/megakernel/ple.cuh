#pragma once

// Device code: the two small products of the per-layer embeddings (docs/gemma4.md 3.2), which have two rows and some
// twenty short rows for a block. Weights that few are in registers, as floats, before their input is there, and every
// thread multiplies what it has: nothing is rounded and nothing laid out in between.
#include "exec/cuda/kernels/megakernel/residual.cuh"
#include "exec/cuda/weights/unpack.cuh"

namespace carat::cuda {

// The rows of a slot as a matrix. first_factor: of Q6_K, counted from the slot's first.
__device__ __forceinline__ PackedView slot_view(const MegakernelProduct& p, const SlotLayout& layout,
                                                const unsigned char* slot, uint32_t first_factor) {
  PackedView view;
  view.packing = p.packing;
  view.quants = slot, view.high = slot + layout.high, view.scales = slot + layout.scales;
  view.super = slot + layout.super + 2 * first_factor;
  return view;
}

// The slot at a place of the ring, once it is full.
__device__ __forceinline__ const unsigned char* await_slot(const MegakernelShared& shared, const Ring& ring,
                                                           uint32_t place, uint32_t& slot) {
  const RingPlace at = place_at(place, shared.slot_count, shared.slot_inverse);
  ring.wait_until_taken(at.slot, at.index);
  mbarrier_wait(ring.full + at.slot * 8, at.parity);
  slot = at.slot;
  return megakernel_slots() + at.slot * shared.slot_bytes;
}

// gelu(W x) * factors, of the stream after absorbing the feed-forward's results, which is updated on the way. With
// x = (old + f e) scale, W x = (W old + f W e) scale: W old is there before e is, and the sums for W e are made with
// the one that gives f.
template <PackingSet kPackings>
__device__ __noinline__ void ple_gate(uint32_t stage) {
  MegakernelShared& shared = megakernel_shared();
  const WindowStage& now = shared.window[stage];
  const MegakernelProduct& p = now.stage.product;
  const Ring ring(shared.ring);
  const uint32_t d = shared.d, column = column_of(0), rows = now.list.count, warp = threadIdx.x / 32;
  const MegakernelShared::Turn turn = shared.turn[warp];
  float* x = megakernel_stream();
  const BlockSums sums(shared.sums), sums_before(shared.sums + 4 * kMegakernelWarps);
  const bool mine = column < d;
  Eight weight = {}, old = {}, e = {};
  if (mine) weight = read_eight(p.delta_norm + column);
  if (mine) old = read_eight(x + column);
  float factor = 0.0f;
  if (threadIdx.x < rows) {
    factor = await(p.factors + now.list.first + threadIdx.x, version_tag(shared.serial, p.factors_version));
  }
  Eight row[kMegakernelGateRows] = {};
  float part[4] = {};
#pragma unroll
  for (uint32_t r = 0; r < kMegakernelGateRows; ++r) {
    if (r >= rows) continue;
    uint32_t slot;
    const unsigned char* weights = await_slot(shared, ring, turn.place + r, slot);
    if (mine) {
      const PackedView view = slot_view(p, now.layout, weights, (now.list.first + r) * p.steps % 8);
      row[r] = unpack_eight<kPackings>(view, column / kStep, column % kStep);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.empty + slot * 8);
    part[1 + r] = dot_of(row[r], old);
  }
  sums_before.put(part);
  EightWords words;
  const auto* in = static_cast<const TaggedWord*>(p.in);
  if (mine) {
    words.load(in + column);
    e = words.await(in + column, version_tag(shared.serial, p.in_version));
  }
  __syncwarp();
  part[0] = dot_of(e, e);
  e = scaled(e, 1.0f, weight);
#pragma unroll
  for (uint32_t r = 0; r < kMegakernelGateRows; ++r) part[1 + r] = dot_of(row[r], e);
  sums.put(part);
  compute_barrier();
  const float4 total = sums.take(), before = sums_before.take();
  const float f = rsqrt_fast(total.x * shared.inverse_d + shared.eps), scale = p.scale;
  if (threadIdx.x < rows) {
    const uint32_t r = threadIdx.x;
    static_assert(kMegakernelGateRows == 2);
    const float product = r == 0 ? before.y + f * total.y : before.z + f * total.z;
    publish(static_cast<TaggedWord*>(p.out) + now.list.first + r, gelu(product * scale) * factor,
            version_tag(shared.serial, p.version));
  }
  if (mine) write_eight(x + column, joined(old, f, e, scale));
  __syncwarp();
  if (threadIdx.x % 32 == 0) shared.turn[warp].place = turn.place + rows;
}

// Rows as wide as the per-layer embeddings: half a warp takes one.
template <PackingSet kPackings>
__device__ __noinline__ void ple_project(uint32_t stage) {
  MegakernelShared& shared = megakernel_shared();
  const WindowStage& now = shared.window[stage];
  const MegakernelProduct& p = now.stage.product;
  const Ring ring(shared.ring);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 16, half = threadIdx.x / 16;
  const uint32_t task = half / kMegakernelProjectRows, row = half % kMegakernelProjectRows, P = p.columns;
  const MegakernelShared::Turn turn = shared.turn[warp];
  auto* values = reinterpret_cast<float4*>(megakernel_region());
  constexpr uint32_t kEights = kMegakernelMaxPle / 128;  // of a lane: columns 8 lane ... of every 128
  Eight weights[kEights] = {};
  if (task < now.list.count) {
    uint32_t slot;
    const unsigned char* from = await_slot(shared, ring, turn.place + task, slot);
    const PackedView view = slot_view(p, now.layout, from, (now.list.first + task) * kMegakernelProjectRows % 8);
#pragma unroll
    for (uint32_t i = 0; i < kEights; ++i) weights[i] = unpack_eight<kPackings>(view, row, 128 * i + 8 * lane);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.empty + slot * 8, 2 * kMegakernelWarps / kMegakernelProjectRows);
  }
  // The last warps have nothing else to do.
  const uint32_t quad = kMegakernelThreads - 1 - threadIdx.x;
  if (quad < kMegakernelMaxPle / 4) {
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const TaggedWord* in = static_cast<const TaggedWord*>(p.in) + 4 * quad;
    if (4 * quad < P) v = await4(in, version_tag(shared.serial, p.in_version), load4_tagged(in));
    values[quad] = v;
  }
  compute_barrier();
  if (task < now.list.count) {
    static_assert(kEights == 2);
    const auto* eights = reinterpret_cast<const Eight*>(values);
    float all = dot_of(weights[0], eights[lane]) + dot_of(weights[1], eights[16 + lane]);
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) all += __shfl_xor_sync(0xffffffffu, all, offset);
    if (lane == 0) {
      publish(static_cast<TaggedWord*>(p.out) + (now.list.first + task) * kMegakernelProjectRows + row, all,
              version_tag(shared.serial, p.version));
    }
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) shared.turn[warp].place = turn.place + now.list.count;
}

}  // namespace carat::cuda
