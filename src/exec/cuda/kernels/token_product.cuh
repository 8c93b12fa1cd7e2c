#pragma once

// Device code: the matrix-vector products of the token kernel, from the activations in shared memory to the results in
// the hands of the other blocks.
//
// A task is a row group (four rows) and a slice of its steps, multiplied by one warp. Lanes lie along the columns in
// the order of memory: of Q8 a lane takes 16 columns and the warp two steps at a time, of the formats of 4 to 6 bits 32
// columns and four steps, of floats 16 bytes.
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/attention_mma.cuh"
#include "exec/cuda/kernels/packings.cuh"
#include "exec/cuda/kernels/token_exchange.cuh"
#include "exec/cuda/kernels/token_ring.cuh"

namespace carat::cuda {

// Activations of a product in shared memory: rounded to 15 bits per 16 values for quantised weights, floats for the
// others. v = scale * (128 h + l) with -128 <= h < 128 and 0 <= l < 128. Of each step: h of 16 runs of 16 columns, l of
// them, in the order in which Q8 has them (columns 0..15 of the eight blocks of 32, then their columns 16..31).
struct TokenActivations {
  uint4* words;   // [steps][2][16]
  float* scales;  // [steps][16]
  float* sums;    // [steps][16] of the rounded values
  float* values;  // [steps * 256], the same memory
};
inline constexpr uint32_t kStepQuads = kStepWords / 4;
inline constexpr uint32_t kStepRuns = 16;

__device__ __forceinline__ TokenActivations activations_at(unsigned char* region, uint32_t steps) {
  TokenActivations x;
  x.words = reinterpret_cast<uint4*>(region);
  x.scales = reinterpret_cast<float*>(region + steps * kStepWords * 4);
  x.sums = x.scales + steps * kStepRuns;
  x.values = reinterpret_cast<float*>(region);
  return x;
}

struct ProductTask {
  const unsigned char* slot;
  SlotLayout layout;
  uint32_t row_cell[kTokenRows];  // where the rows begin in the slot
  uint32_t begin, end, x_step;    // steps within the slot's rows; the activations' step that belongs to step 0
  // Rows put together from experts: columns of one divided by multiplying with this, and what follows of the cells.
  uint32_t expert_inverse, expert_steps, expert_cells;
  // Q6_K: where the factors of each row begin, in factors from the slot's first.
  uint32_t row_factor[kTokenRows];

  // What to add to a row's beginning for one of its steps.
  __device__ uint32_t step_cell(uint32_t step) const { return step + expert_of(step) * expert_cells; }
  __device__ uint32_t expert_of(uint32_t step) const {
    return expert_steps == 0 ? 0 : __umulhi(step * kStep, expert_inverse);
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
  __device__ HalfBlock(const TokenActivations& x, uint32_t step, uint32_t run)
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

template <>
struct RowProducts<Packing::kQ8> {
  static __device__ __forceinline__ void add(const ProductTask& t, const TokenActivations& x,
                                             float (&acc)[kTokenRows]) {
    const uint32_t run = threadIdx.x % 16;
#pragma unroll 2
    for (uint32_t step = t.begin + threadIdx.x % 32 / 16; step < t.end; step += 2) {
      const uint32_t step_cell = t.step_cell(step);
      const HalfBlock a(x, t.x_step + step, run);
#pragma unroll
      for (uint32_t r = 0; r < kTokenRows; ++r) {
        const uint32_t cell = t.row_cell[r] + step_cell;
        const float scale = __half2float(t.plane<__half>(t.layout.scales, cell * 8 + run % 8));
        acc[r] += scale * a.dot(t.plane<uint4>(0, cell * 16 + run));
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

template <>
struct RowProducts<Packing::kQ4> {
  static __device__ __forceinline__ void add(const ProductTask& t, const TokenActivations& x,
                                             float (&acc)[kTokenRows]) {
    const uint32_t lane8 = threadIdx.x % 8;
    // 16 (q - 8) as int8.
    const auto low = [](uint32_t q) { return flip_tops(q << 4 & 0xf0f0f0f0u); };
    const auto high = [](uint32_t q) { return flip_tops(q & 0xf0f0f0f0u); };
#pragma unroll 1
    for (uint32_t step = t.begin + threadIdx.x % 32 / 8; step < t.end; step += 4) {
      const uint32_t step_cell = t.step_cell(step);
      const HalfBlock a(x, t.x_step + step, lane8), b(x, t.x_step + step, 8 + lane8);
#pragma unroll
      for (uint32_t r = 0; r < kTokenRows; ++r) {
        const uint32_t cell = t.row_cell[r] + step_cell;
        const uint4 q = t.plane<uint4>(0, cell * 8 + lane8);
        const float scale = __half2float(t.plane<__half>(t.layout.scales, cell * 8 + lane8)) * 0.0625f;
        acc[r] += scale * (a.dot(make_uint4(low(q.x), low(q.y), low(q.z), low(q.w))) +
                           b.dot(make_uint4(high(q.x), high(q.y), high(q.z), high(q.w))));
      }
    }
  }
};

// Q4_K, and Q5_K with its fifth bits.
template <bool kFifth>
struct RowProductsK {
  static __device__ __forceinline__ void add(const ProductTask& t, const TokenActivations& x,
                                             float (&acc)[kTokenRows]) {
    const uint32_t lane8 = threadIdx.x % 8;
#pragma unroll 1
    for (uint32_t step = t.begin + threadIdx.x % 32 / 8; step < t.end; step += 4) {
      const uint32_t step_cell = t.step_cell(step);
      const HalfBlock a(x, t.x_step + step, lane8), b(x, t.x_step + step, 8 + lane8);
      const float* sums = x.sums + (t.x_step + step) * kStepRuns + lane8;
      const float sum = sums[0] + sums[8];
#pragma unroll
      for (uint32_t r = 0; r < kTokenRows; ++r) {
        const uint32_t cell = t.row_cell[r] + step_cell;
        Halves q(t.plane<uint4>(0, cell * 8 + lane8));
        if constexpr (kFifth) {
          const auto fifth = t.plane<uint32_t>(t.layout.high, cell * 8 + lane8);
          q.low.x |= DotQ5K::fifth_bits(fifth, 0), q.low.y |= DotQ5K::fifth_bits(fifth, 1);
          q.low.z |= DotQ5K::fifth_bits(fifth, 2), q.low.w |= DotQ5K::fifth_bits(fifth, 3);
          q.high.x |= DotQ5K::fifth_bits(fifth, 4), q.high.y |= DotQ5K::fifth_bits(fifth, 5);
          q.high.z |= DotQ5K::fifth_bits(fifth, 6), q.high.w |= DotQ5K::fifth_bits(fifth, 7);
        }
        float factor, minimum;
        k_header(t.plane<uint4>(t.layout.scales, cell), lane8, factor, minimum);
        acc[r] += factor * (a.dot(q.low) + b.dot(q.high)) - minimum * sum;
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
  static __device__ __forceinline__ void add(const ProductTask& t, const TokenActivations& x,
                                             float (&acc)[kTokenRows]) {
    const uint32_t lane8 = threadIdx.x % 8;
    // 4 (q - 32) as int8, of nibbles and word `w` of the top bits.
    const auto whole = [](uint32_t nibbles, uint32_t top, int w) {
      return flip_tops((nibbles | DotQ6K::top_bits(top, w)) << 2);
    };
#pragma unroll 1
    for (uint32_t step = t.begin + threadIdx.x % 32 / 8; step < t.end; step += 4) {
      const uint32_t step_cell = t.step_cell(step);
      const HalfBlock a(x, t.x_step + step, lane8), b(x, t.x_step + step, 8 + lane8);
      const uint32_t expert = t.expert_of(step);
      const uint32_t factor_at = expert * (t.layout.super_run / 2) + step - expert * t.expert_steps;
#pragma unroll
      for (uint32_t r = 0; r < kTokenRows; ++r) {
        const uint32_t cell = t.row_cell[r] + step_cell;
        const Halves q(t.plane<uint4>(0, cell * 8 + lane8));
        const auto top = t.plane<uint2>(t.layout.high, cell * 8 + lane8);
        const uint4 low = make_uint4(whole(q.low.x, top.x, 0), whole(q.low.y, top.x, 1), whole(q.low.z, top.x, 2),
                                     whole(q.low.w, top.x, 3));
        const uint4 high = make_uint4(whole(q.high.x, top.y, 0), whole(q.high.y, top.y, 1), whole(q.high.z, top.y, 2),
                                      whole(q.high.w, top.y, 3));
        const uint32_t pair = t.plane<uint16_t>(t.layout.scales, cell * 8 + lane8);
        const auto first = static_cast<float>(static_cast<int8_t>(pair & 0xff));
        const auto last = static_cast<float>(static_cast<int8_t>(pair >> 8));
        const float factor = __half2float(t.plane<__half>(t.layout.super, t.row_factor[r] + factor_at)) * 0.25f;
        acc[r] += factor * (first * a.dot(low) + last * b.dot(high));
      }
    }
  }
};

template <bool kBFloat>
struct RowProducts16Bit {
  static __device__ __forceinline__ void add(const ProductTask& t, const TokenActivations& x,
                                             float (&acc)[kTokenRows]) {
    const auto pair = [&](uint32_t word) {
      if constexpr (kBFloat) return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
      return __half22float2(*reinterpret_cast<const __half2*>(&word));
    };
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
    for (uint32_t step = t.begin; step < t.end; ++step) {
      const auto* v = reinterpret_cast<const float4*>(x.values + (t.x_step + step) * kStep) + 2 * lane;
      const float4 x0 = v[0], x1 = v[1];
#pragma unroll
      for (uint32_t r = 0; r < kTokenRows; ++r) {
        const uint4 w = t.plane<uint4>(0, (t.row_cell[r] + step) * 32 + lane);
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
  static __device__ __forceinline__ void add(const ProductTask& t, const TokenActivations& x,
                                             float (&acc)[kTokenRows]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
    for (uint32_t half = 2 * t.begin; half < 2 * t.end; ++half) {
      const float4 v = reinterpret_cast<const float4*>(x.values + t.x_step * kStep)[half * 32 + lane];
#pragma unroll
      for (uint32_t r = 0; r < kTokenRows; ++r) {
        const float4 w = t.plane<float4>(0, t.row_cell[r] * 64 + half * 32 + lane);
        acc[r] += w.x * v.x + w.y * v.y + w.z * v.z + w.w * v.w;
      }
    }
  }
};

// Four sums over a warp: lane l gets that of number l / 8.
__device__ __forceinline__ float reduce_four(float v0, float v1, float v2, float v3) {
  const bool upper = (threadIdx.x & 16) != 0, odd = (threadIdx.x & 8) != 0;
  float a = upper ? v2 : v0, b = upper ? v3 : v1;
  a += __shfl_xor_sync(0xffffffffu, upper ? v0 : v2, 16);
  b += __shfl_xor_sync(0xffffffffu, upper ? v1 : v3, 16);
  float v = odd ? b : a;
  v += __shfl_xor_sync(0xffffffffu, odd ? a : b, 8);
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// Finds the rows of row group `within` of the slot's.
__device__ __forceinline__ void find_rows(const TokenProduct& p, uint32_t within, ProductTask& task) {
  const uint32_t pitch = p.expert_steps != 0 ? p.expert_steps : p.chunks.cut_steps;
  if (p.output == TokenOutput::kGeglu) {
    task.row_cell[0] = 2 * within * pitch;
    task.row_cell[2] = task.row_cell[0] + 2 * p.chunks.groups * pitch;
  } else {
    task.row_cell[0] = kTokenRows * within * pitch;
    task.row_cell[2] = task.row_cell[0] + 2 * pitch;
  }
  task.row_cell[1] = task.row_cell[0] + pitch;
  task.row_cell[3] = task.row_cell[2] + pitch;
}

// And their factors (Q6_K), which lie in lines as they do in memory: a run's first factor anywhere in its first line.
// `group`: the row group, of which the slot's first is `first_group`.
__device__ __forceinline__ void find_factors(const TokenProduct& p, uint32_t first_group, uint32_t group, uint32_t cut,
                                             ProductTask& task) {
  const uint32_t run_factors = task.layout.super_run / 2, within = group - first_group;
  const bool geglu = p.output == TokenOutput::kGeglu;
  if (p.expert_steps != 0) {
    // Experts begin at whole lines.
#pragma unroll
    for (uint32_t r = 0; r < kTokenRows; ++r) {
      task.row_factor[r] = kTokenRows * first_group * p.expert_steps % 8 + (kTokenRows * within + r) * p.expert_steps;
    }
    return;
  }
  uint32_t part = 0, part_first = 0;
  if (p.expert_groups != 0) {
    part = group / p.expert_groups - first_group / p.expert_groups;  // of the slot's experts
    part_first = group / p.expert_groups * p.expert_groups;
  } else if (!geglu && group >= p.part_end[0]) {
    part = group < p.part_end[1] ? 1 : 2;
    part_first = p.part_end[part - 1];
  }
  const uint32_t rows = geglu ? 2 : kTokenRows;
  if (p.chunks.cuts > 1) {
#pragma unroll
    for (uint32_t r = 0; r < kTokenRows; ++r) {
      const uint32_t row = rows * (group - part_first) + r % rows;
      task.row_factor[r] = r * run_factors + (row * p.steps + cut * p.chunks.cut_steps) % 8;
    }
    return;
  }
  const uint32_t begin = max(first_group, part_first);
#pragma unroll
  for (uint32_t r = 0; r < kTokenRows; ++r) {
    const uint32_t run = geglu ? 2 * part + r / 2 : part;
    task.row_factor[r] =
        run * run_factors + rows * (begin - part_first) * p.steps % 8 + (rows * (group - begin) + r % rows) * p.steps;
  }
}

// All of this block's tasks, slot by slot. Ends without a barrier: partial sums are complete once all threads are here.
// A call of its own, as everything that happens once a stage: what it keeps in registers ends with it.
template <Packing kPacking>
__device__ __noinline__ RingPlace multiply_tasks(const WindowStage& now, const unsigned char* slots,
                                                 RingBarriers barriers, uint32_t slot_count, uint32_t slot_bytes,
                                                 unsigned char* region, float* partial, RingPlace place) {
  assume_shared(&now), assume_shared(slots), assume_shared(region), assume_shared(partial);
  const TokenProduct& p = now.stage.product;
  const TokenChunks chunks = p.chunks;
  const TokenActivations x = activations_at(region, p.steps);
  ProductTask task;
  task.layout = slot_layout(p, packed_bytes(kPacking));
  task.expert_inverse = p.expert_inverse;
  task.expert_steps = p.expert_steps;
  task.expert_cells = (kTokenRows * chunks.groups - 1) * p.expert_steps;
  uint32_t turn = threadIdx.x / 32;  // tasks until this warp's next one
#pragma unroll 1
  for (uint32_t group = 0; group < now.list.groups; group += chunks.groups) {
    const uint32_t tasks = min(chunks.groups, now.list.groups - group) * chunks.slices;
#pragma unroll 1
    for (uint32_t cut = 0; cut < chunks.cuts; ++cut) {
      barrier_wait(barriers.full + place.slot * 8, place.parity);
      task.slot = slots + place.slot * slot_bytes;
      task.x_step = cut * chunks.cut_steps;
#pragma unroll 1
      for (; turn < tasks; turn += kTokenWarps) {
        const uint32_t within = quotient(turn, p.slice_inverse), slice = turn - within * chunks.slices;
        find_rows(p, within, task);
        task.begin = slice * chunks.slice_steps;
        task.end = min(task.begin + chunks.slice_steps, min(chunks.cut_steps, p.steps - task.x_step));
        if constexpr (kPacking == Packing::kQ6K) {
          find_factors(p, now.list.first_group + group, now.list.first_group + group + within, cut, task);
        }
        float acc[kTokenRows] = {};
        RowProducts<kPacking>::add(task, x, acc);
        const float sum = reduce_four(acc[0], acc[1], acc[2], acc[3]);
        const uint32_t index = ((group + within) * chunks.cuts + cut) * chunks.slices + slice;
        if (threadIdx.x % 8 == 0) partial[kTokenRows * index + threadIdx.x % 32 / 8] = sum;
      }
      turn -= tasks;
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(barriers.empty + place.slot * 8);
      place.advance(slot_count);
    }
  }
  return place;
}

// The four sums of a row group over its slices and cuts.
__device__ __forceinline__ float4 group_sums(const float* partial, uint32_t group, uint32_t count) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const auto* from = reinterpret_cast<const float4*>(partial) + group * count;
  constexpr uint32_t kAtOnce = 8;
#pragma unroll 1
  for (uint32_t first = 0; first < count; first += kAtOnce) {
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (first + i >= count) continue;
      const float4 v = from[first + i];
      sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
  }
  return sum;
}

// Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
__device__ __forceinline__ uint32_t rounded_bits(float x, float inverse) {
  return __float_as_uint(x * inverse + 12582912.0f);
}

// gelu by one exponential: 0.5 x (1 + tanh u) = x / (1 + e^(-2 u)).
__device__ __forceinline__ float gelu_exp(float x) {
  const float u = 0.7978845608028654f * x * (1.0f + 0.044715f * x * x);
  return __fdividef(x, 1.0f + __expf(-2.0f * u));
}

// The results of GEGLU as runs of 16 rounded values: eight lanes make one of them. `staging`: of this warp.
__device__ __forceinline__ void publish_geglu(const WindowStage& now, const float* partial, const float* expert_weights,
                                              uint32_t (&staging)[4][12], uint32_t tag) {
  const TokenProduct& p = now.stage.product;
  const uint32_t count = p.chunks.cuts * p.chunks.slices, lane8 = threadIdx.x % 8;
#pragma unroll 1
  for (uint32_t first = threadIdx.x & ~31u; first < now.list.groups; first += kTokenThreads) {
    const uint32_t g = first + threadIdx.x % 32;
    const bool valid = g < now.list.groups;
    const float4 v = group_sums(partial, valid ? g : 0, count);
    float a = gelu_exp(v.x) * v.z, b = gelu_exp(v.y) * v.w;
    if (p.expert_groups != 0 && valid) {
      const float weight = expert_weights[(now.list.first_group + g) / p.expert_groups];
      a *= weight, b *= weight;
    }
    float largest = max_or_nan(fabsf(a), fabsf(b));
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) {
      largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    const float inverse = largest > 0.0f ? __fdividef(kLevels, largest) : 0.0f;
    const uint32_t ra = rounded_bits(a, inverse), rb = rounded_bits(b, inverse);
    uint32_t* run = staging[threadIdx.x % 32 / 8];
    auto* halves = reinterpret_cast<uint16_t*>(run);
    halves[lane8] = static_cast<uint16_t>((ra >> 7 & 0xffu) | (rb >> 7 & 0xffu) << 8);
    halves[8 + lane8] = static_cast<uint16_t>((ra & 0x7fu) | (rb & 0x7fu) << 8);
    // A NaN or infinity must stay visible: it makes the scale non-finite and with it every product.
    if (lane8 == 0) run[8] = __float_as_uint(largest * (1.0f / kLevels));
    __syncwarp();
    if (lane8 < 3 && valid) {
      auto* to = static_cast<TaggedRun*>(p.out) + (now.list.first_group + g - lane8) / 8;
      publish_run_word(to, lane8, run[3 * lane8], run[3 * lane8 + 1], run[3 * lane8 + 2], tag);
    }
    __syncwarp();
  }
}

// `factors`: of kGeluTimes, those of this block's row groups.
__device__ __noinline__ void publish_results(const WindowStage& now, const float* partial, const float4* factors,
                                             const float* expert_weights, uint32_t (*staging)[4][12], uint32_t serial,
                                             const TokenJob& job) {
  assume_shared(&now), assume_shared(partial), assume_shared(factors), assume_shared(expert_weights);
  assume_shared(staging);
  const TokenProduct& p = now.stage.product;
  const uint32_t tag = stage_tag(serial, p.made), count = p.chunks.cuts * p.chunks.slices;
  if (p.output == TokenOutput::kGeglu) {
    return publish_geglu(now, partial, expert_weights, staging[threadIdx.x / 32], tag);
  }
#pragma unroll 1
  for (uint32_t g = threadIdx.x; g < now.list.groups; g += kTokenThreads) {
    float4 v = group_sums(partial, g, count);
    const uint32_t group = now.list.first_group + g;
    if (p.output == TokenOutput::kScalars) {
      Tagged* to = static_cast<Tagged*>(p.out) + kTokenRows * group;
      publish(to, v.x, tag), publish(to + 1, v.y, tag), publish(to + 2, v.z, tag), publish(to + 3, v.w, tag);
      continue;
    }
    if (p.output == TokenOutput::kLogits) {
      if (!isfinite(v.x + v.y + v.z + v.w)) *job.non_finite = 1;
      if (job.softcap > 0.0f) {
        const auto cap = [&](float l) { return job.softcap * tanhf(l / job.softcap); };
        v = make_float4(cap(v.x), cap(v.y), cap(v.z), cap(v.w));
      }
      static_cast<float4*>(p.out)[group] = v;
      continue;
    }
    if (p.output == TokenOutput::kGeluTimes) {
      const float4 f = factors[g];
      v = make_float4(gelu_exp(v.x) * f.x, gelu_exp(v.y) * f.y, gelu_exp(v.z) * f.z, gelu_exp(v.w) * f.w);
    }
    publish4(static_cast<TaggedQuad*>(p.out) + group, v, tag);
  }
}

}  // namespace carat::cuda
