#pragma once

// Device code: the matrix-vector products of the token kernel, from the activations in shared memory to the results in
// the hands of the other blocks.
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/packings.cuh"
#include "exec/cuda/kernels/token_exchange.cuh"
#include "exec/cuda/kernels/token_ring.cuh"

namespace carat::cuda {

// Activations of a product in shared memory: rounded ones for quantised weights, floats for the others.
struct TokenActivations {
  uint32_t* words;  // [steps * kStepWords]
  BlockMeta* meta;  // [steps * 8]
  float* values;    // [steps * 256], the same memory
};

__device__ __forceinline__ TokenActivations activations_at(unsigned char* region, uint32_t steps) {
  return {reinterpret_cast<uint32_t*>(region), reinterpret_cast<BlockMeta*>(region + steps * kStepWords * 4),
          reinterpret_cast<float*>(region)};
}
__host__ __device__ inline uint32_t activation_bytes(bool floats, uint32_t steps) {
  return steps * (floats ? kStep * 4 : kStepWords * 4 + kStepBlocks * static_cast<uint32_t>(sizeof(BlockMeta)));
}

// Half of a block of activations, in registers: four rows of weights are multiplied with it.
struct HalfBlock {
  uint4 high, low;
  float scale;
  int32_t sum;
  __device__ HalfBlock(const TokenActivations& x, uint32_t step, uint32_t lane8, int half) {
    const auto* words = reinterpret_cast<const uint4*>(x.words + step * kStepWords) + lane8 + 8 * half;
    high = words[0];
    low = words[16];
    const BlockMeta meta = x.meta[step * kStepBlocks + lane8];
    scale = meta.scale[half];
    sum = meta.sum[half];
  }
  // 16 weights (int8) less `offset`, times the activations.
  __device__ float dot(const uint4& w, int offset) const {
    return scale * static_cast<float>(128 * dot16(w, high, 0) + dot16(w, low, 0) - offset * sum);
  }
};

// Products of units: what a lane adds to its four sums.
struct UnitProduct {
  const TokenProduct& p;
  TokenActivations x;
  uint32_t lane8, lane16;
  Packing packing;
  uint32_t first_group, task;  // of the block, and which it is

  using Slot = const unsigned char*;
  template <typename T>
  __device__ static T read(Slot at) {
    return *reinterpret_cast<const T*>(at);
  }
  __device__ static Slot row_of(Slot slot, uint32_t row) { return slot + row * kRingRowBytes + threadIdx.x * 16; }
  __device__ static uint4 quants(Slot slot, uint32_t row) { return read<uint4>(row_of(slot, row)); }
  __device__ static Slot scales(Slot slot, uint32_t row) {
    return slot + kRingScales + (threadIdx.x / 8 * kTokenRows + row) * 16;
  }
  __device__ float half_scale(Slot slot, uint32_t row) const {
    return __half2float(read<__half>(scales(slot, row) + lane8 * 2));
  }

  // The unit at `first`, number `unit` of the task, and with `two` the one after it at `second`. Segments from `begin`
  // up to `end` are this half-warp's.
  __device__ void add(Slot first, Slot second, bool two, uint32_t unit, uint32_t begin, uint32_t end,
                      float (&acc)[kTokenRows]) {
    switch (packing) {
      case Packing::kQ4:
      case Packing::kQ4K: {
        const uint32_t step = 2 * (begin + unit) + lane16 / 8;
        const uint32_t step_end = min(2 * end, p.steps);
        if (packing == Packing::kQ4) {
          if (step < step_end) add_q4(first, step, acc);
          if (two && step + 2 < step_end) add_q4(second, step + 2, acc);
        } else {
          if (step < step_end) add_k(first, first, step, acc);
          if (two && step + 2 < step_end) add_k(second, second, step + 2, acc);
        }
        return;
      }
      case Packing::kF16:
      case Packing::kBF16:
        if (begin + unit / 4 >= end) return;
        add_16_bit(first, begin + unit / 4, unit % 4, acc);
        add_16_bit(second, begin + unit / 4, unit % 4 + 1, acc);
        return;
      case Packing::kF32:
        if (begin + unit / 8 >= end) return;
        add_floats(first, begin + unit / 8, unit % 8, acc);
        add_floats(second, begin + unit / 8, unit % 8 + 1, acc);
        return;
      default:
        break;
    }
    // Two units make a segment.
    const uint32_t step = 2 * (begin + unit / 2) + lane16 / 8;
    if (step >= min(2 * end, p.steps)) return;
    if (packing == Packing::kQ8) {
      add_q8(first, second, step, acc);
    } else if (packing == Packing::kQ5K) {
      add_k(first, second, step, acc);
    } else {
      add_q6k(first, second, step, acc);
    }
  }

 private:
  __device__ void add_q8(Slot first, Slot second, uint32_t step, float (&acc)[kTokenRows]) const {
    const HalfBlock a(x, step, lane8, 0), b(x, step, lane8, 1);
#pragma unroll
    for (uint32_t r = 0; r < kTokenRows; ++r) {
      acc[r] += half_scale(first, r) * (a.dot(quants(first, r), 0) + b.dot(quants(second, r), 0));
    }
  }

  __device__ void add_q4(Slot slot, uint32_t step, float (&acc)[kTokenRows]) const {
    const HalfBlock a(x, step, lane8, 0), b(x, step, lane8, 1);
#pragma unroll
    for (uint32_t r = 0; r < kTokenRows; ++r) {
      const uint4 q = quants(slot, r);
      acc[r] += half_scale(slot, r) * (a.dot(low_nibbles(q), 8) + b.dot(high_nibbles(q), 8));
    }
  }

  // Q4_K, and Q5_K with its fifth bits in the second unit.
  __device__ void add_k(Slot slot, Slot second, uint32_t step, float (&acc)[kTokenRows]) const {
    const HalfBlock a(x, step, lane8, 0), b(x, step, lane8, 1);
    const float sum = a.scale * static_cast<float>(a.sum) + b.scale * static_cast<float>(b.sum);
#pragma unroll
    for (uint32_t r = 0; r < kTokenRows; ++r) {
      const uint4 q = quants(slot, r);
      uint4 low = low_nibbles(q), high = high_nibbles(q);
      if (packing == Packing::kQ5K) {
        const uint32_t fifth = read<uint32_t>(row_of(second, r));
        low.x |= DotQ5K::fifth_bits(fifth, 0), low.y |= DotQ5K::fifth_bits(fifth, 1);
        low.z |= DotQ5K::fifth_bits(fifth, 2), low.w |= DotQ5K::fifth_bits(fifth, 3);
        high.x |= DotQ5K::fifth_bits(fifth, 4), high.y |= DotQ5K::fifth_bits(fifth, 5);
        high.z |= DotQ5K::fifth_bits(fifth, 6), high.w |= DotQ5K::fifth_bits(fifth, 7);
      }
      float factor, minimum;
      k_header(read<uint4>(scales(slot, r)), lane8, factor, minimum);
      acc[r] += factor * (a.dot(low, 0) + b.dot(high, 0)) - minimum * sum;
    }
  }

  __device__ void add_q6k(Slot slot, Slot second, uint32_t step, float (&acc)[kTokenRows]) const {
    const HalfBlock a(x, step, lane8, 0), b(x, step, lane8, 1);
    const uint32_t row_steps = p.expert_steps != 0 ? p.expert_steps : p.steps;
    const uint32_t step_of_row = p.expert_steps != 0 ? step % p.expert_steps : step;
    // Where the rows begin, in cells, as far as even or odd goes: all experts begin at an even one, and the gate and up
    // rows of a group at the same place of theirs.
    const bool geglu = p.output == TokenOutput::kGeglu;
    const uint32_t group = first_group + quotient(task, p.slice_inverse);
    const uint32_t part_begin = geglu || group < p.part_end[0] ? 0
                                : group < p.part_end[1]        ? p.part_end[0]
                                                               : p.part_end[1];
    const uint32_t in_expert = p.expert_groups != 0 ? group % p.expert_groups : group - part_begin;
    const uint32_t first_row = in_expert * (geglu ? 2 : kTokenRows);
#pragma unroll
    for (uint32_t r = 0; r < kTokenRows; ++r) {
      const uint4 q = quants(slot, r);
      const uint2 top = read<uint2>(row_of(second, r));
      uint4 low = low_nibbles(q), high = high_nibbles(q);
      low.x |= DotQ6K::top_bits(top.x, 0), low.y |= DotQ6K::top_bits(top.x, 1);
      low.z |= DotQ6K::top_bits(top.x, 2), low.w |= DotQ6K::top_bits(top.x, 3);
      high.x |= DotQ6K::top_bits(top.y, 0), high.y |= DotQ6K::top_bits(top.y, 1);
      high.z |= DotQ6K::top_bits(top.y, 2), high.w |= DotQ6K::top_bits(top.y, 3);
      const uint32_t pair = read<uint16_t>(scales(slot, r) + lane8 * 2);
      const auto first = static_cast<float>(static_cast<int8_t>(pair & 0xff));
      const auto last = static_cast<float>(static_cast<int8_t>(pair >> 8));
      // Of the four bytes copied, the half that belongs to this cell.
      const uint32_t cell = (first_row + (geglu ? r & 1 : r)) * row_steps + step_of_row;
      acc[r] += __half2float(read<__half>(scales(second, r) + 2 * (cell & 1))) *
                (first * a.dot(low, 32) + last * b.dot(high, 32));
    }
  }

  __device__ void add_16_bit(Slot slot, uint32_t segment, uint32_t unit, float (&acc)[kTokenRows]) const {
    const uint32_t column = segment * kTokenSegment + (unit * 16 + lane16) * 8;
    if (column >= p.steps * kStep) return;
    const float4 x0 = *reinterpret_cast<const float4*>(x.values + column);
    const float4 x1 = *reinterpret_cast<const float4*>(x.values + column + 4);
    const auto pair = [&](uint32_t word) {
      if (packing == Packing::kBF16) {
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
      }
      return __half22float2(*reinterpret_cast<const __half2*>(&word));
    };
#pragma unroll
    for (uint32_t r = 0; r < kTokenRows; ++r) {
      const uint4 w = quants(slot, r);
      const float2 a = pair(w.x), b = pair(w.y), c = pair(w.z), d = pair(w.w);
      acc[r] += a.x * x0.x + a.y * x0.y + b.x * x0.z + b.y * x0.w;
      acc[r] += c.x * x1.x + c.y * x1.y + d.x * x1.z + d.y * x1.w;
    }
  }

  __device__ void add_floats(Slot slot, uint32_t segment, uint32_t unit, float (&acc)[kTokenRows]) const {
    const uint32_t column = segment * kTokenSegment + (unit * 16 + lane16) * 4;
    if (column >= p.steps * kStep) return;
    const float4 v = *reinterpret_cast<const float4*>(x.values + column);
#pragma unroll
    for (uint32_t r = 0; r < kTokenRows; ++r) {
      const uint4 w = quants(slot, r);
      acc[r] += __uint_as_float(w.x) * v.x + __uint_as_float(w.y) * v.y + __uint_as_float(w.z) * v.z +
                __uint_as_float(w.w) * v.w;
    }
  }
};

// Sums of a task's four rows over the half-warp, to partial[4 task ...].
__device__ __forceinline__ void store_sums(const float (&acc)[kTokenRows], uint32_t lane16, float* to, bool valid) {
  // Two exchanges leave each lane one row, two more sum it.
  const bool upper = (lane16 & 8) != 0;
  float a = upper ? acc[2] : acc[0], b = upper ? acc[3] : acc[1];
  a += __shfl_xor_sync(0xffffffffu, upper ? acc[0] : acc[2], 8);
  b += __shfl_xor_sync(0xffffffffu, upper ? acc[1] : acc[3], 8);
  const bool second = (lane16 & 4) != 0;
  float v = second ? b : a;
  v += __shfl_xor_sync(0xffffffffu, second ? a : b, 4);
  v += __shfl_xor_sync(0xffffffffu, v, 2);
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  if (valid && (lane16 & 3) == 0) to[lane16 / 8 * 2 + (second ? 1 : 0)] = v;
}

// All of this block's tasks. Ends without a barrier: partial sums are complete once all threads are here.
template <typename Ring>
__device__ __forceinline__ void multiply_tasks(const WindowStage& now, Ring& ring, unsigned char* region,
                                               float* partial) {
  const TokenProduct& p = now.stage.product;
  const uint32_t half = threadIdx.x / 16, units = units_of(p.packing) * now.list.segments, tasks = now.list.tasks;
  UnitProduct product{
      p, activations_at(region, p.steps), threadIdx.x % 8, threadIdx.x % 16, p.packing, now.list.first_group, half & 1};
#pragma unroll 1
  for (uint32_t first = half & ~1u; first < tasks; first += kHalfWarps) {
    product.task = first + (half & 1);
    const bool valid = product.task < tasks;
    const uint32_t slice = product.task - quotient(product.task, p.slice_inverse) * p.slices;
    const uint32_t begin = quotient(now.list.segments_of_row * slice, p.slice_inverse);
    const uint32_t end = valid ? quotient(now.list.segments_of_row * (slice + 1), p.slice_inverse) : begin;
    float acc[kTokenRows] = {};
#pragma unroll 1
    for (uint32_t unit = 0; unit < units; unit += 2) {
      const bool two = unit + 1 < units;
      ring.top_up();
      ring.wait(two);
      product.add(ring.slot(0), ring.slot(1), two, unit, begin, end, acc);
      ring.release(two ? 2 : 1);
    }
    store_sums(acc, threadIdx.x % 16, partial + kTokenRows * product.task, valid);
  }
}

// The four sums of a row group over its slices.
__device__ __forceinline__ float4 group_sums(const float* partial, uint32_t group, uint32_t slices) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const auto* from = reinterpret_cast<const float4*>(partial) + group * slices;
  constexpr uint32_t kAtOnce = 4;
#pragma unroll 1
  for (uint32_t first = 0; first < slices; first += kAtOnce) {
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (first + i >= slices) continue;
      const float4 v = from[first + i];
      sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
  }
  return sum;
}

// gelu by one exponential: 0.5 x (1 + tanh u) = x / (1 + e^(-2 u)).
__device__ __forceinline__ float gelu_exp(float x) {
  const float u = 0.7978845608028654f * x * (1.0f + 0.044715f * x * x);
  return x / (1.0f + __expf(-2.0f * u));
}

__device__ __forceinline__ void publish_results(const WindowStage& now, const float* partial, uint32_t serial,
                                                const TokenJob& job) {
  const TokenProduct& p = now.stage.product;
  const uint32_t tag = stage_tag(serial, p.made);
#pragma unroll 1
  for (uint32_t g = threadIdx.x; g < now.list.groups; g += kTokenThreads) {
    float4 v = group_sums(partial, g, p.slices);
    const uint32_t group = now.list.first_group + g;
    if (p.output == TokenOutput::kGeglu) {
      publish_pair(static_cast<uint64_t*>(p.out) + group, gelu_exp(v.x) * v.z, gelu_exp(v.y) * v.w, tag);
      continue;
    }
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
      const float4 factors = await4(p.factors + group, stage_tag(serial, p.factors_stage));
      v = make_float4(gelu_exp(v.x) * factors.x, gelu_exp(v.y) * factors.y, gelu_exp(v.z) * factors.z,
                      gelu_exp(v.w) * factors.w);
    }
    publish4(static_cast<TaggedQuad*>(p.out) + group, v, tag);
  }
}

}  // namespace carat::cuda
