// Top-k of logits without sorting the vocabulary. Pass 1 counts the logits of each row in 4096 bins of their ordered
// bit pattern (sign, exponent, three bits of mantissa). Pass 2 finds the bin that holds the k-th, collects what lies in
// or above it, and the last block of a row sorts those few. Two small launches; reads the logits twice (from L2).
#include "exec/cuda/kernels/select.h"

#include "exec/cuda/device/launch.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kThreads = 1024;
constexpr uint32_t kSlice = 8192;  // logits per block

// Larger float, larger key.
__device__ __forceinline__ uint32_t ordered_key(float v) {
  const uint32_t bits = __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float key_value(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
__device__ __forceinline__ uint32_t bin_of(uint32_t key) { return key >> 20; }

__global__ void __launch_bounds__(kThreads) count_kernel(const float* logits, uint32_t V, uint32_t* bins) {
  __shared__ uint32_t local[kSelectBins];
  for (uint32_t b = threadIdx.x; b < kSelectBins; b += kThreads) local[b] = 0;
  wait_for_predecessor();
  release_successor();
  __syncthreads();
  const float* row = logits + static_cast<uint64_t>(blockIdx.y) * V;
  const uint32_t end = min(V, (blockIdx.x + 1) * kSlice);
  for (uint32_t i = blockIdx.x * kSlice + threadIdx.x; i < end; i += kThreads)
    atomicAdd(&local[bin_of(ordered_key(row[i]))], 1);
  __syncthreads();
  uint32_t* global = bins + static_cast<uint64_t>(blockIdx.y) * kSelectBins;
  for (uint32_t b = threadIdx.x; b < kSelectBins; b += kThreads) {
    if (local[b] != 0) atomicAdd(&global[b], local[b]);
  }
}

// The highest bin t such that bins t and above hold at least k values. Every thread gets the answer.
__device__ uint32_t threshold_bin(const uint32_t* bins, uint32_t k, uint32_t* sums) {
  // Thread t sums bins [4 t', 4 t' + 4) counted from the top, then a scan over 1024 sums.
  constexpr uint32_t kPer = kSelectBins / kThreads;
  uint32_t mine = 0;
  for (uint32_t i = 0; i < kPer; ++i) mine += bins[kSelectBins - 1 - (threadIdx.x * kPer + i)];
  uint32_t scan = mine;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, scan, offset);
    if (lane >= offset) scan += below;
  }
  if (lane == 31) sums[warp] = scan;
  __shared__ uint32_t found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  uint32_t before = scan - mine;
  for (uint32_t w = 0; w < warp; ++w) before += sums[w];
  if (before < k && before + mine >= k) {
    uint32_t above = before;
    for (uint32_t i = 0; i < kPer; ++i) {
      const uint32_t bin = kSelectBins - 1 - (threadIdx.x * kPer + i);
      above += bins[bin];
      if (above >= k) {
        found = bin;
        break;
      }
    }
  }
  __syncthreads();
  return found;
}

// Descending bitonic sort of `size` (a power of two) keys in shared memory.
__device__ void sort_descending(uint64_t* keys, uint32_t size) {
  for (uint32_t run = 2; run <= size; run <<= 1) {
    for (uint32_t stride = run >> 1; stride > 0; stride >>= 1) {
      for (uint32_t i = threadIdx.x; i < size / 2; i += kThreads) {
        const uint32_t low = 2 * i - (i & (stride - 1));
        const uint32_t high = low + stride;
        const bool descending = (low & run) == 0;
        const uint64_t a = keys[low], b = keys[high];
        if ((a < b) == descending) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    collect_kernel(const float* logits, uint32_t V, const uint32_t* wanted,
                   const __grid_constant__ SelectScratch scratch, int32_t* tokens, float* values, uint32_t* counts) {
  extern __shared__ __align__(16) uint64_t keys[];
  __shared__ uint32_t sums[32];
  __shared__ bool last;
  wait_for_predecessor();
  release_successor();
  const uint32_t row = blockIdx.y;
  const uint32_t k = min(min(*wanted, V), kSelectMax);
  uint32_t* bins = scratch.bins + static_cast<uint64_t>(row) * kSelectBins;
  uint32_t* counters = scratch.counters + row * 2;
  uint64_t* collected = scratch.collected + static_cast<uint64_t>(row) * kSelectCapacity;
  const uint32_t threshold = threshold_bin(bins, k, sums);
  const float* from = logits + static_cast<uint64_t>(row) * V;
  const uint32_t end = min(V, (blockIdx.x + 1) * kSlice);
  for (uint32_t i = blockIdx.x * kSlice + threadIdx.x; i < end; i += kThreads) {
    const uint32_t key = ordered_key(from[i]);
    if (bin_of(key) >= threshold) {
      const uint32_t at = atomicAdd(&counters[0], 1);
      // The index is inverted so that among equal logits the lower one sorts first.
      if (at < kSelectCapacity) collected[at] = (static_cast<uint64_t>(key) << 32) | (0xffffffffu - i);
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&counters[1], 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  const uint32_t found = *static_cast<volatile uint32_t*>(&counters[0]);
  if (found <= kSelectCapacity) {
    uint32_t size = 2;
    while (size < found) size <<= 1;
    for (uint32_t i = threadIdx.x; i < size; i += kThreads) {
      keys[i] = i < found ? *static_cast<volatile uint64_t*>(&collected[i]) : 0;
    }
    __syncthreads();
    sort_descending(keys, size);
    for (uint32_t i = threadIdx.x; i < k; i += kThreads) {
      tokens[static_cast<uint64_t>(row) * kSelectMax + i] =
          static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(keys[i]));
      values[static_cast<uint64_t>(row) * kSelectMax + i] = key_value(static_cast<uint32_t>(keys[i] >> 32));
    }
  }
  if (threadIdx.x == 0) {
    counts[row] = found <= kSelectCapacity ? k : kSelectOverflow;
    counters[0] = counters[1] = 0;
  }
  for (uint32_t b = threadIdx.x; b < kSelectBins; b += kThreads) bins[b] = 0;
}

__global__ void pick_kernel(const float* logits, const int32_t* tokens, uint32_t count, float* values) {
  wait_for_predecessor();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = logits[tokens[i]];
}

__global__ void softcap_kernel(float* logits, uint64_t count, float cap, uint32_t* non_finite) {
  wait_for_predecessor();
  release_successor();
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float v = logits[i];
  if (!isfinite(v)) *non_finite = 1;
  if (cap > 0.0f) logits[i] = cap * tanhf(v / cap);
}

}  // namespace

void pick_logits(const float* logits, const int32_t* tokens, uint32_t count, float* values, const Launch& how) {
  launch("pick_logits", pick_kernel, dim3((count + 255) / 256), dim3(256), 0, how, logits, tokens, count, values);
}

void softcap(float* logits, uint64_t count, float cap, uint32_t* non_finite, const Launch& how) {
  launch("softcap", softcap_kernel, dim3(static_cast<uint32_t>((count + 255) / 256)), dim3(256), 0, how, logits, count,
         cap, non_finite);
}

void select_best(const float* logits, uint32_t rows, uint32_t V, const uint32_t* k, const SelectScratch& scratch,
                 int32_t* tokens, float* values, uint32_t* counts, const Launch& how) {
  const dim3 grid((V + kSlice - 1) / kSlice, rows);
  launch("select_count", count_kernel, grid, dim3(kThreads), 0, how, logits, V, scratch.bins);
  constexpr size_t kShared = kSelectCapacity * sizeof(uint64_t);
  allow_shared_memory(collect_kernel, kShared, "select_collect");
  launch("select_collect", collect_kernel, grid, dim3(kThreads), kShared, how, logits, V, k, scratch, tokens, values,
         counts);
}

}  // namespace carat::cuda
