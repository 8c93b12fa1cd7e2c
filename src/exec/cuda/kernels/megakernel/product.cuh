#pragma once

// Device code: the matrix-vector products of the token kernel, from the activations in shared memory to the results in
// the hands of the other blocks.
//
// A task is one to eight rows, multiplied by one warp. Lanes lie along the columns in the order of memory: of Q8 a
// lane takes 16 columns and the warp two steps at a time, of the formats of 4 to 6 bits 32 columns and four steps, of
// floats 16 bytes.
#include "exec/cuda/kernels/gemv/activation.cuh"
#include "exec/cuda/kernels/gemv/packings.cuh"
#include "exec/cuda/kernels/megakernel/block.cuh"
#include "exec/cuda/kernels/megakernel/exchange.cuh"
#include "exec/cuda/kernels/ptx/mma.cuh"

namespace carat::cuda {

// Activations of a product in shared memory: rounded to 15 bits per 16 values for quantised weights, floats for the
// others. v = scale * (128 h + l) with -128 <= h < 128 and 0 <= l < 128. Of each step: h of 16 runs of 16 columns, l of
// them, in the order in which Q8 has them (columns 0..15 of the eight blocks of 32, then their columns 16..31).
struct MegakernelActivations {
  uint4* words;   // [steps][2][16]
  float* scales;  // [steps][16]
  float* sums;    // [steps][16] of the rounded values
  float* values;  // [steps * 256], the same memory
};
inline constexpr uint32_t kStepQuads = kStepWords / 4;
inline constexpr uint32_t kStepRuns = 16;

__device__ __forceinline__ MegakernelActivations activations_at(unsigned char* region, uint32_t steps) {
  MegakernelActivations x;
  x.words = reinterpret_cast<uint4*>(region);
  x.scales = reinterpret_cast<float*>(region + steps * kStepWords * 4);
  x.sums = x.scales + steps * kStepRuns;
  x.values = reinterpret_cast<float*>(region);
  return x;
}

// A task's rows in a slot.
struct SlotRows {
  const unsigned char* slot;
  SlotLayout layout;
  uint32_t pitch;          // cells from row to row
  uint32_t steps, x_step;  // in the slot; the activations' step that belongs to its first
  // Rows put together from experts: columns of one divided by multiplying with this, and what follows of the cells.
  uint32_t expert_inverse, expert_steps, expert_cells;
  // Q6_K: where the factors of each row begin, in factors from the slot's first.
  uint32_t row_factor[kMegakernelMostRows];

  __device__ uint32_t expert_of(uint32_t step) const { return __umulhi(step * kStep, expert_inverse); }
  // Of the first row; the others' are `pitch` apart.
  template <bool kExperts>
  __device__ uint32_t cell_of(uint32_t step) const {
    return kExperts ? step + expert_of(step) * expert_cells : step;
  }
  template <typename T>
  __device__ T plane(uint32_t offset, uint32_t index) const {
    return reinterpret_cast<const T*>(slot + offset)[index];
  }
};

// Half of a block of activations, in registers: four rows of weights are multiplied with it.
struct HalfBlock {
  uint4 high, low;
  float scale;
  __device__ HalfBlock(const MegakernelActivations& x, uint32_t step, uint32_t run)
      : high(x.words[step * kStepQuads + run]),
        low(x.words[step * kStepQuads + kStepRuns + run]),
        scale(x.scales[step * kStepRuns + run]) {}
  // 16 weights (int8) times the activations.
  __device__ float dot(const uint4& w) const {
    return scale * static_cast<float>(128 * dot16(w, high, 0) + dot16(w, low, 0));
  }
};

template <Packing kPacking>
struct RowProducts;

// Few rows leave a warp waiting for its loads: several steps of them are under way at once.
constexpr uint32_t steps_at_once(uint32_t rows) { return rows >= 4 ? 1 : rows == 2 ? 2 : 3; }

template <>
struct RowProducts<Packing::kQ8> {
  template <uint32_t kRows, bool kExperts>
  static __device__ __forceinline__ void add(const SlotRows& t, const MegakernelActivations& x, float (&acc)[kRows]) {
    constexpr uint32_t kAtOnce = steps_at_once(kRows);
    const uint32_t run = threadIdx.x % 16;
#pragma unroll(kAtOnce == 1 ? 2 : 1)
    for (uint32_t begin = threadIdx.x % 32 / 16; begin < t.steps; begin += 2 * kAtOnce) {
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const bool there = i == 0 || begin + 2 * i < t.steps;
        const uint32_t step = there ? begin + 2 * i : begin, first = t.cell_of<kExperts>(step);
        const HalfBlock a(x, t.x_step + step, run);
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) {
          const uint32_t cell = r * t.pitch + first;
          const float scale = __half2float(t.plane<__half>(t.layout.scales, cell * 8 + run % 8));
          acc[r] += (there ? scale : 0.0f) * a.dot(t.plane<uint4>(0, cell * 16 + run));
        }
      }
    }
  }
};

// A lane's block of 32 columns of one row: columns 0..15 in the low nibbles, 16..31 in the high ones.
struct Halves {
  uint4 low, high;
  __device__ explicit Halves(const uint4& q) : low(low_nibbles(q)), high(high_nibbles(q)) {}
};
// Signed weights are made from unsigned ones by flipping the top bit of a byte, so that no sum of activations is
// needed.
__device__ __forceinline__ uint32_t flip_tops(uint32_t bytes) { return bytes ^ 0x80808080u; }

inline constexpr uint32_t kLowNibbles = 0x0f0f0f0fu, kHighNibbles = 0xf0f0f0f0u;

// Products of unsigned weights and activations.
__device__ __forceinline__ int dot16_unsigned(const uint4& w, const uint4& x) {
  return dp4a_unsigned_signed(
      w.w, x.w, dp4a_unsigned_signed(w.z, x.z, dp4a_unsigned_signed(w.y, x.y, dp4a_unsigned_signed(w.x, x.x, 0))));
}
// Half of a block of unsigned weights times its activations, without their scale.
__device__ __forceinline__ float dot_unsigned(const HalfBlock& a, const uint4& w) {
  return static_cast<float>(128 * dot16_unsigned(w, a.high) + dot16_unsigned(w, a.low));
}
__device__ __forceinline__ uint4 masked(const uint4& q, uint32_t mask) {
  return make_uint4(q.x & mask, q.y & mask, q.z & mask, q.w & mask);
}

// Nibbles as they lie, q and 16 q, each one instruction from its word; eight times the activations' sum is taken off
// afterwards, once for all rows.
template <>
struct RowProducts<Packing::kQ4> {
  template <uint32_t kRows, bool kExperts>
  static __device__ __forceinline__ void add(const SlotRows& t, const MegakernelActivations& x, float (&acc)[kRows]) {
    const uint32_t lane8 = threadIdx.x % 8;
    const auto weights = [&](uint32_t cell) { return t.plane<uint4>(0, cell * 8 + lane8); };
    const auto scale = [&](uint32_t cell) { return __half2float(t.plane<__half>(t.layout.scales, cell * 8 + lane8)); };
    constexpr uint32_t kAtOnce = steps_at_once(kRows);
#pragma unroll 1
    for (uint32_t begin = threadIdx.x % 32 / 8; begin < t.steps; begin += 4 * kAtOnce) {
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const bool there = i == 0 || begin + 4 * i < t.steps;
        const uint32_t step = there ? begin + 4 * i : begin, first = t.cell_of<kExperts>(step);
        const HalfBlock a(x, t.x_step + step, lane8), b(x, t.x_step + step, 8 + lane8);
        const float* sums = x.sums + (t.x_step + step) * kStepRuns + lane8;
        const float offset = -8.0f * (sums[0] + sums[8]), b_scale = b.scale * 0.0625f;
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) {
          const uint32_t cell = r * t.pitch + first;
          const uint4 q = weights(cell);
          const float sum = a.scale * dot_unsigned(a, masked(q, kLowNibbles)) + offset +
                            b_scale * dot_unsigned(b, masked(q, kHighNibbles));
          acc[r] += (there ? scale(cell) : 0.0f) * sum;
        }
      }
    }
  }
};

// Q4_K, and Q5_K with its fifth bits.
template <bool kFifth>
struct RowProductsK {
  template <uint32_t kRows, bool kExperts>
  static __device__ __forceinline__ void add(const SlotRows& t, const MegakernelActivations& x, float (&acc)[kRows]) {
    const uint32_t lane8 = threadIdx.x % 8;
#pragma unroll 1
    for (uint32_t step = threadIdx.x % 32 / 8; step < t.steps; step += 4) {
      const uint32_t first = t.cell_of<kExperts>(step);
      const HalfBlock a(x, t.x_step + step, lane8), b(x, t.x_step + step, 8 + lane8);
      const float* sums = x.sums + (t.x_step + step) * kStepRuns + lane8;
      const float sum = sums[0] + sums[8], b_scale = b.scale * 0.0625f;
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        const uint32_t cell = r * t.pitch + first;
        const auto q = t.plane<uint4>(0, cell * 8 + lane8);
        float product;
        if constexpr (kFifth) {
          Halves whole(q);
          const auto fifth = t.plane<uint32_t>(t.layout.high, cell * 8 + lane8);
          whole.low.x |= fifth_bits(fifth, 0), whole.low.y |= fifth_bits(fifth, 1);
          whole.low.z |= fifth_bits(fifth, 2), whole.low.w |= fifth_bits(fifth, 3);
          whole.high.x |= fifth_bits(fifth, 4), whole.high.y |= fifth_bits(fifth, 5);
          whole.high.z |= fifth_bits(fifth, 6), whole.high.w |= fifth_bits(fifth, 7);
          product = a.dot(whole.low) + b.dot(whole.high);
        } else {
          product =
              a.scale * dot_unsigned(a, masked(q, kLowNibbles)) + b_scale * dot_unsigned(b, masked(q, kHighNibbles));
        }
        float factor, minimum;
        k_header(t.plane<uint4>(t.layout.scales, cell), lane8, factor, minimum);
        acc[r] += factor * product - minimum * sum;
      }
    }
  }
};
template <>
struct RowProducts<Packing::kQ4K> : RowProductsK<false> {};
template <>
struct RowProducts<Packing::kQ5K> : RowProductsK<true> {};

template <>
struct RowProducts<Packing::kQ6K> {
  template <uint32_t kRows, bool kExperts>
  static __device__ __forceinline__ void add(const SlotRows& t, const MegakernelActivations& x, float (&acc)[kRows]) {
    const uint32_t lane8 = threadIdx.x % 8;
    // 4 (q - 32) as int8, of nibbles and word `w` of the top bits.
    const auto whole = [](uint32_t nibbles, uint32_t top, int w) {
      return flip_tops((nibbles | top_bits(top, w)) << 2);
    };
#pragma unroll 1
    for (uint32_t step = threadIdx.x % 32 / 8; step < t.steps; step += 4) {
      const uint32_t first = t.cell_of<kExperts>(step);
      const HalfBlock a(x, t.x_step + step, lane8), b(x, t.x_step + step, 8 + lane8);
      const uint32_t expert = kExperts ? t.expert_of(step) : 0;
      const uint32_t factor_at = expert * (t.layout.super_run / 2) + step - expert * t.expert_steps;
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        const uint32_t cell = r * t.pitch + first;
        const Halves q(t.plane<uint4>(0, cell * 8 + lane8));
        const auto top = t.plane<uint2>(t.layout.high, cell * 8 + lane8);
        const uint4 low = make_uint4(whole(q.low.x, top.x, 0), whole(q.low.y, top.x, 1), whole(q.low.z, top.x, 2),
                                     whole(q.low.w, top.x, 3));
        const uint4 high = make_uint4(whole(q.high.x, top.y, 0), whole(q.high.y, top.y, 1), whole(q.high.z, top.y, 2),
                                      whole(q.high.w, top.y, 3));
        const uint32_t pair = t.plane<uint16_t>(t.layout.scales, cell * 8 + lane8);
        const auto a_scale = static_cast<float>(static_cast<int8_t>(pair & 0xff));
        const auto b_scale = static_cast<float>(static_cast<int8_t>(pair >> 8));
        const float factor = __half2float(t.plane<__half>(t.layout.super, t.row_factor[r] + factor_at)) * 0.25f;
        acc[r] += factor * (a_scale * a.dot(low) + b_scale * b.dot(high));
      }
    }
  }
};

template <bool kBFloat>
struct RowProducts16Bit {
  template <uint32_t kRows, bool kExperts>
  static __device__ __forceinline__ void add(const SlotRows& t, const MegakernelActivations& x, float (&acc)[kRows]) {
    const auto pair = [&](uint32_t word) {
      if constexpr (kBFloat) return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
      return __half22float2(*reinterpret_cast<const __half2*>(&word));
    };
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
    for (uint32_t step = 0; step < t.steps; ++step) {
      const auto* v = reinterpret_cast<const float4*>(x.values + (t.x_step + step) * kStep) + 2 * lane;
      const float4 x0 = v[0], x1 = v[1];
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        const uint4 w = t.plane<uint4>(0, (r * t.pitch + step) * 32 + lane);
        const float2 a = pair(w.x), b = pair(w.y), c = pair(w.z), d = pair(w.w);
        acc[r] += a.x * x0.x + a.y * x0.y + b.x * x0.z + b.y * x0.w;
        acc[r] += c.x * x1.x + c.y * x1.y + d.x * x1.z + d.y * x1.w;
      }
    }
  }
};
template <>
struct RowProducts<Packing::kF16> : RowProducts16Bit<false> {};
template <>
struct RowProducts<Packing::kBF16> : RowProducts16Bit<true> {};

template <>
struct RowProducts<Packing::kF32> {
  template <uint32_t kRows, bool kExperts>
  static __device__ __forceinline__ void add(const SlotRows& t, const MegakernelActivations& x, float (&acc)[kRows]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
    for (uint32_t half = 0; half < 2 * t.steps; ++half) {
      const float4 v = reinterpret_cast<const float4*>(x.values + t.x_step * kStep)[half * 32 + lane];
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        const float4 w = t.plane<float4>(0, r * t.pitch * 64 + half * 32 + lane);
        acc[r] += w.x * v.x + w.y * v.y + w.z * v.z + w.w * v.w;
      }
    }
  }
};

// Sums over a warp: lane l gets that of number l / (32 / kRows).
template <uint32_t kRows>
__device__ __forceinline__ float reduce_rows(const float (&v)[kRows]) {
  const auto other = [](float x, int offset) { return __shfl_xor_sync(0xffffffffu, x, offset); };
  // Lanes that differ in one bit share the rows they have between them, as long as there is more than one.
  float mine[kRows];
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) mine[r] = v[r];
#pragma unroll
  for (uint32_t offset = 16, rows = kRows; offset > 0; offset /= 2) {
    if (rows == 1) {
      mine[0] += other(mine[0], static_cast<int>(offset));
      continue;
    }
    rows /= 2;
    const bool upper = (threadIdx.x & offset) != 0;
#pragma unroll
    for (uint32_t r = 0; r < rows; ++r) {
      const float kept = upper ? mine[r + rows] : mine[r], given = upper ? mine[r] : mine[r + rows];
      mine[r] = kept + other(given, static_cast<int>(offset));
    }
  }
  return mine[0];
}

// The factors (Q6_K) of a task's rows lie in lines as they do in memory: a run's first factor anywhere in its first
// line. Experts begin at whole lines.
template <uint32_t kRows>
__device__ __forceinline__ void find_factors(const MegakernelProduct& p, uint32_t index, uint32_t cut, SlotRows& task) {
  const uint32_t run_factors = task.layout.super_run / 2, together = run_rows(p);
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    if (p.expert_steps != 0) {
      task.row_factor[r] = kRows * index * p.expert_steps % 8 + r * p.expert_steps;
      continue;
    }
    // Its matrix in the task, and its place there.
    const uint32_t part = r / together, within = r - part * together;
    uint32_t row = index * together;
    if (is_geglu(p.output)) {
      if (p.expert_rows != 0) row %= p.expert_rows;
    } else if (row >= p.part_end[0]) {
      row -= row < p.part_end[1] ? p.part_end[0] : p.part_end[1];
    }
    task.row_factor[r] = p.task.cuts > 1 ? r * run_factors + ((row + within) * p.steps + cut * p.task.cut_steps) % 8
                                         : part * run_factors + row * p.steps % 8 + within * p.steps;
  }
}

// What values with this largest magnitude are multiplied with to be rounded. Zeros stay zeros; a NaN or infinity stays
// visible because it makes the run's scale non-finite and with it every product.
__device__ __forceinline__ float levels_of(float largest) { return reciprocal_fast(fmaxf(largest, 1e-30f)) * kLevels; }
// Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
__device__ __forceinline__ uint32_t rounded_bits(float x, float inverse) {
  return __float_as_uint(x * inverse + 12582912.0f);
}

// Where results go, read before there are any: nothing should be waited for in between.
struct MegakernelResults {
  MegakernelOutput output;
  void* out;
  uint32_t tag;
  __device__ MegakernelResults(const MegakernelProduct& p, uint32_t serial)
      : output(p.output), out(p.out), tag(version_tag(serial, p.version)) {
    auto kind = static_cast<uint32_t>(output);
    pin(kind), pin(out), pin(tag);
    output = static_cast<MegakernelOutput>(kind);
  }
};

// Rounds eight values and hands them out. Who comes last does it.
__device__ __forceinline__ void publish_eight(const MegakernelResults& to, float (&values)[kMegakernelEight],
                                              uint32_t index) {
  const uint32_t lane = threadIdx.x % 32;
  const float v = values[lane % kMegakernelEight];
  float largest = fabsf(v);
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) {
    largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  const uint32_t exponent = eight_exponent(largest);
  __syncwarp();
  // Over the values: all lanes have theirs.
  if (lane < kMegakernelEight) {
    reinterpret_cast<uint16_t*>(values)[lane] =
        static_cast<uint16_t>(eight_field(v, exponent, lane < kMegakernelEight / 2 ? exponent : to.tag, lane));
  }
  __syncwarp();
  if (lane == 0) {
    const auto& word = *reinterpret_cast<const ulonglong2*>(values);
    store_16(static_cast<TaggedEight*>(to.out) + index, word.x, word.y);
  }
}

// Of the experts whose weights are being multiplied, so they are chosen.
__device__ __forceinline__ float expert_weight(const MegakernelShared& shared, uint32_t i) {
  const uint32_t weighed = shared_address(&shared.weighed), routed = shared_address(&shared.routed);
  while (read_shared(weighed) != read_shared(routed)) {
  }
  return __uint_as_float(read_shared(shared_address(shared.expert_weights + i)));
}

// gelu(gate) * up of a task: gates are with the lanes of the lower half, ups with those of the upper one.
template <uint32_t kRows>
__device__ __forceinline__ void hand_out_geglu(const MegakernelProduct& p, const MegakernelResults& to, uint32_t task,
                                               float sum) {
  MegakernelShared& shared = megakernel_shared();
  constexpr uint32_t kTasks = 2 * kMegakernelEight / kRows;  // that make eight results
  const uint32_t lane = threadIdx.x % 32, within = lane / (32 / kRows), index = task / kTasks;
  const bool holds = lane < 16 && lane % (32 / kRows) == 0;
  const float up = __shfl_xor_sync(0xffffffffu, sum, 16);
  float value = gelu(sum) * up;
  if (to.output == MegakernelOutput::kGeglu) {
    if (holds) publish(static_cast<TaggedWord*>(to.out) + task * (kRows / 2) + within, value, to.tag);
    return;
  }
  if (p.expert_rows != 0) value *= expert_weight(shared, task * (kRows / 2) / p.expert_rows);
  auto& values = shared.eights.values[index % kMegakernelPendingEights];
  uint32_t& made = shared.eights.made[index % kMegakernelPendingEights];
  if (holds) values[task % kTasks * (kRows / 2) + within] = value;
  __syncwarp();
  uint32_t before = 0;
  if (lane == 0) before = count_up(made);
  if (__shfl_sync(0xffffffffu, before, 0) != kTasks - 1) return;
  __syncwarp();
  if (lane == 0) made = 0;
  publish_eight(to, values, index);
}

// `sum`: of the lane's row of the task.
template <uint32_t kRows, TaskResults kResults>
__device__ __forceinline__ void hand_out(const MegakernelProduct& p, const MegakernelResults& to, uint32_t first_task,
                                         uint32_t task, float sum) {
  const MegakernelShared& shared = megakernel_shared();
  if constexpr (kResults == kGegluResults) return hand_out_geglu<kRows>(p, to, task, sum);
  if (threadIdx.x % (32 / kRows) != 0) return;
  const uint32_t within = threadIdx.x % 32 / (32 / kRows), row = task * kRows + within;
  if constexpr (kResults == kWordResults) return publish(static_cast<TaggedWord*>(to.out) + row, sum, to.tag);
  if (to.output == MegakernelOutput::kLogits) {
    if (!isfinite(sum)) *shared.non_finite = 1;
    if (shared.softcap > 0.0f) sum = shared.softcap * tanhf(sum / shared.softcap);
    static_cast<float*>(to.out)[row] = sum;
    return;
  }
  sum = gelu(sum) * shared.factors[row - first_task * kRows];  // kGeluTimes
  publish(static_cast<TaggedWord*>(to.out) + row, sum, to.tag);
}

// The sums of one cut of a task wait for those of its others; who comes last adds them up in order, and has the row's.
// False: others are still to come.
template <uint32_t kRows>
__device__ __forceinline__ bool join_cuts(uint32_t unit, uint32_t task, uint32_t cut, uint32_t cuts, float& sum) {
  static_assert(kRows <= kMegakernelCutRows);
  MegakernelShared& shared = megakernel_shared();
  const uint32_t lane = threadIdx.x % 32, row = lane / (32 / kRows);
  PendingCuts& pending = shared.cuts;
  if (lane % (32 / kRows) == 0) pending.sums[unit % kMegakernelPendingUnits][row] = sum;
  __syncwarp();
  uint32_t before = 0;
  if (lane == 0) before = count_up(pending.made[task % kMegakernelPendingTasks]);
  if (__shfl_sync(0xffffffffu, before, 0) != cuts - 1) return false;
  __syncwarp();
  if (lane == 0) pending.made[task % kMegakernelPendingTasks] = 0;
  sum = 0.0f;
#pragma unroll 1
  for (uint32_t c = 0; c < cuts; ++c) sum += pending.sums[(unit - cut + c) % kMegakernelPendingUnits][row];
  return true;
}

// This warp's part of a stage: tasks, or cuts of them, are dealt out to the warps in the order of the ring. Holds all
// warps back before the first product, when everything is prepared for it. Ends without a barrier: other warps may
// still read the activations.
// A call of its own, as everything that happens once a stage: what it keeps in registers ends with it. `stage`: its
// place in the window.
template <Packing kPacking, uint32_t kRows, bool kExperts, TaskResults kResults>
__device__ __noinline__ void multiply_tasks(uint32_t stage) {
  MegakernelShared& shared = megakernel_shared();
  const WindowStage& now = shared.window[stage];
  const MegakernelProduct& p = now.stage.product;
  const Ring ring(shared.ring);
  const uint32_t warp = threadIdx.x / 32, slot_count = shared.slot_count, inverse = shared.slot_inverse;
  const uint32_t slot_bytes = shared.slot_bytes, cut_steps = p.task.cut_steps, steps = p.steps;
  const uint32_t cuts = kRows <= kMegakernelCutRows ? p.task.cuts : 1;
  const unsigned char* slots = megakernel_slots();
  const MegakernelShared::Turn turn = shared.turn[warp];
  const MegakernelActivations x = activations_at(megakernel_region(), steps);
  SlotRows rows;
  rows.layout = now.layout;
  rows.pitch = kExperts ? p.expert_steps : p.task.cut_steps;
  rows.expert_inverse = p.expert_inverse;
  rows.expert_steps = p.expert_steps;
  rows.expert_cells = (kRows - 1) * p.expert_steps;
  const MegakernelResults results(p, shared.serial);
  const TaskList list = now.list;
  const uint32_t units = list.count * cuts;
  const uint32_t warps = now.warps, turn_tasks = now.turn_tasks, turn_cuts = now.turn_cuts;
  uint32_t unit = warp < warps ? (warp - turn.warp) & (warps - 1) : units;
  uint32_t task = unit, cut = 0;
  if (cuts > 1) {
    task = unit * now.cuts_inverse >> 8;
    cut = unit - task * cuts;
  }
  compute_barrier();
#pragma unroll 1
  for (; unit < units; unit += warps) {
    const RingPlace place = place_at(turn.place + unit, slot_count, inverse);
    ring.wait_until_taken(place.slot, place.index);
    mbarrier_wait(ring.full + place.slot * 8, place.parity);
    rows.slot = slots + place.slot * slot_bytes;
    rows.x_step = cut * cut_steps;
    rows.steps = min(cut_steps, steps - rows.x_step);
    if constexpr (kPacking == Packing::kQ6K) find_factors<kRows>(p, list.first + task, cut, rows);
    float acc[kRows] = {};
    RowProducts<kPacking>::template add<kRows, kExperts>(rows, x, acc);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.empty + place.slot * 8, kMegakernelWarps);
    float sum = reduce_rows<kRows>(acc);
    bool whole = true;
    if constexpr (kRows <= kMegakernelCutRows) {
      if (cuts > 1) whole = join_cuts<kRows>(unit, task, cut, cuts, sum);
    }
    if (whole) hand_out<kRows, kResults>(p, results, list.first, list.first + task, sum);
    task += turn_tasks;
    if constexpr (kRows <= kMegakernelCutRows) {
      cut += turn_cuts;
      if (cut >= cuts) cut -= cuts, ++task;
    }
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) shared.turn[warp] = {turn.place + units, (turn.warp + units) & (warps - 1)};
}

}  // namespace carat::cuda
