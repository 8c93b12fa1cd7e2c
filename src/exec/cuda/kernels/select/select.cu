// Top-k of logits without sorting the vocabulary, in one launch that reads them once.
//
// A row is divided into up to 4096 groups of neighbours; all blocks together find the largest of each. As many logits
// as there are maxima above a threshold are at least that large, so the k-th largest maximum is a lower bound of the
// k-th largest logit, and only groups whose maximum reaches it can hold one of the k best. The last block of a row
// finds the bound with a histogram of the maxima, looks through those groups (about k of them), and puts what it finds
// in order. Bound by latency: one pass over the logits out of L2, then one block's work on a few hundred values.
#include "exec/cuda/kernels/select/select.h"

#include <algorithm>

#include "exec/cuda/device/launch.h"
#include "exec/cuda/kernels/select/ordered.cuh"

namespace carat::cuda {
namespace {

constexpr uint32_t kThreads = 1024, kWarps = kThreads / 32;
constexpr uint32_t kBins = 1024;  // of the histogram of maxima: one a thread
static_assert(kBins == kThreads);
constexpr uint32_t kTile = 128;  // logits a warp reads at once
constexpr uint32_t kOwnGroups = kSelectGroups / kThreads;
constexpr uint32_t kRankMost = 256;  // candidates that are ordered by counting the larger ones; more are sorted

// How a row is divided. A warp's tile holds 32 / lanes groups, or a group several tiles where V is very large.
struct SelectShape {
  uint32_t V;
  uint32_t lanes;        // that share a group: a power of two
  uint32_t group_tiles;  // 1 unless lanes is 32
  uint32_t groups;
  uint32_t block_tiles;  // of a block: a multiple of group_tiles
};

// Columns first ... first + 3 of a row; those beyond V are as small as can be.
__device__ __forceinline__ float4 load_logits(const float* row, uint32_t first, uint32_t V) {
  if (V % 4 == 0 && first < V) return __ldcg(reinterpret_cast<const float4*>(row + first));
  const auto at = [&](uint32_t c) { return c < V ? __ldcg(row + c) : -INFINITY; };
  return make_float4(at(first), at(first + 1), at(first + 2), at(first + 3));
}

__device__ __forceinline__ float largest4(const float4& v) { return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)); }

__device__ __forceinline__ float capped(float v, float cap) { return cap > 0.0f ? cap * tanhf(v / cap) : v; }

// What is done to the logits before they are compared; nothing where non_finite is null.
struct SelectCap {
  float cap;             // 0: none
  uint32_t* non_finite;  // [rows]
  __device__ __forceinline__ float4 load(float* row, uint32_t first, uint32_t V) const {
    float4 v = load_logits(row, first, V);
    if (non_finite == nullptr || first >= V) return v;
    float* values[4] = {&v.x, &v.y, &v.z, &v.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      if (first + i >= V) continue;
      if (!isfinite(*values[i])) non_finite[blockIdx.y] = 1;
      *values[i] = capped(*values[i], cap);
    }
    if (V % 4 == 0) {
      *reinterpret_cast<float4*>(row + first) = v;
    } else {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        if (first + i < V) row[first + i] = *values[i];
      }
    }
    return v;
  }
};

// The maxima of the groups in this block's tiles.
__device__ __forceinline__ void find_maxima(float* row, const SelectCap& cap, const SelectShape& shape, float* maxima) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t first_tile = blockIdx.x * shape.block_tiles;
  const uint32_t end_tile = min(first_tile + shape.block_tiles, (shape.V + kTile - 1) / kTile);
#pragma unroll 4
  for (uint32_t tile = first_tile + warp * shape.group_tiles; tile < end_tile; tile += kWarps * shape.group_tiles) {
    float largest = largest4(cap.load(row, tile * kTile + lane * 4, shape.V));
    for (uint32_t t = tile + 1; t < min(tile + shape.group_tiles, end_tile); ++t) {
      largest = fmaxf(largest, largest4(cap.load(row, t * kTile + lane * 4, shape.V)));
    }
    for (uint32_t offset = 1; offset < shape.lanes; offset <<= 1) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    const uint32_t group = tile / shape.group_tiles * (32 / shape.lanes) + lane / shape.lanes;
    if (lane % shape.lanes == 0 && group < shape.groups) maxima[group] = largest;
  }
}

// What the threads of the last block share.
struct SelectShared {
  uint32_t bins[kBins];
  uint32_t sums[kWarps];
  float low[kWarps], high[kWarps];
  uint32_t groups[kSelectGroups];  // those that are looked through
  uint32_t group_count, found, threshold;
  bool last;
};

// Cuts the values from `low` to `high` into bins of equal width; larger values are never in a lower bin.
struct LinearBins {
  float low, scale;
  __device__ uint32_t of(float v) const {
    const float place = (v - low) * scale;  // infinities and NaN end up somewhere
    return place >= kBins - 1 ? kBins - 1 : place > 0.0f ? static_cast<uint32_t>(place) : 0u;
  }
};

// The lowest bin such that this bin and those above hold at least k maxima. Thread t owns bin kBins - 1 - t.
__device__ __forceinline__ void find_threshold(SelectShared& s, uint32_t k) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t mine = s.bins[kBins - 1 - threadIdx.x];
  uint32_t scan = mine;
#pragma unroll
  for (uint32_t offset = 1; offset < 32; offset <<= 1) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, scan, offset);
    if (lane >= offset) scan += below;
  }
  if (lane == 31) s.sums[warp] = scan;
  __syncthreads();
  uint32_t before = scan - mine;
  for (uint32_t w = 0; w < warp; ++w) before += s.sums[w];
  if (before < k && before + mine >= k) s.threshold = kBins - 1 - threadIdx.x;
  __syncthreads();
}

// Range of the maxima that are numbers, over the block.
__device__ __forceinline__ LinearBins bins_over(const float (&maximum)[kOwnGroups], SelectShared& s) {
  float low = INFINITY, high = -INFINITY;
#pragma unroll
  for (uint32_t i = 0; i < kOwnGroups; ++i) {
    if (!isfinite(maximum[i])) continue;
    low = fminf(low, maximum[i]);
    high = fmaxf(high, maximum[i]);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    low = fminf(low, __shfl_xor_sync(0xffffffffu, low, offset));
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, offset));
  }
  if (threadIdx.x % 32 == 0) {
    s.low[threadIdx.x / 32] = low;
    s.high[threadIdx.x / 32] = high;
  }
  __syncthreads();
#pragma unroll 8
  for (uint32_t w = 0; w < kWarps; ++w) {
    low = fminf(low, s.low[w]);
    high = fmaxf(high, s.high[w]);
  }
  // Where all are equal every one of them is in bin 0.
  return {low, high > low ? static_cast<float>(kBins - 1) / (high - low) : 0.0f};
}

// Puts the logits that can be among the k best into `keys`, as (ordered value, inverted index): among equal logits the
// lower index sorts first. s.found counts all of them, also those for which there is no room.
__device__ __forceinline__ void collect(const float* row, const SelectShape& shape, const float* maxima, uint32_t k,
                                        SelectShared& s, uint64_t* keys) {
  s.bins[threadIdx.x] = 0;
  if (threadIdx.x == 0) s.group_count = s.found = s.threshold = 0;
  float maximum[kOwnGroups];
#pragma unroll
  for (uint32_t i = 0; i < kOwnGroups; ++i) {
    const uint32_t group = threadIdx.x + i * kThreads;
    maximum[i] = group < shape.groups ? __ldcg(maxima + group) : -INFINITY;
  }
  const LinearBins bins = bins_over(maximum, s);
#pragma unroll
  for (uint32_t i = 0; i < kOwnGroups; ++i) {
    if (threadIdx.x + i * kThreads < shape.groups) atomicAdd(&s.bins[bins.of(maximum[i])], 1);
  }
  __syncthreads();
  find_threshold(s, k);
  const uint32_t threshold = s.threshold;  // 0, and with it everything, where there are fewer groups than k
#pragma unroll
  for (uint32_t i = 0; i < kOwnGroups; ++i) {
    const uint32_t group = threadIdx.x + i * kThreads;
    if (group < shape.groups && bins.of(maximum[i]) >= threshold) s.groups[atomicAdd(&s.group_count, 1)] = group;
  }
  __syncthreads();

  const uint32_t per_warp = 32 / shape.lanes, lane = threadIdx.x % 32;
  const auto take = [&](float v, uint32_t column) {
    if (column >= shape.V || bins.of(v) < threshold) return;
    const uint32_t at = atomicAdd(&s.found, 1);
    if (at < kSelectCapacity) keys[at] = (static_cast<uint64_t>(ordered_key(v)) << 32) | (0xffffffffu - column);
  };
#pragma unroll 2
  for (uint32_t i = threadIdx.x / 32 * per_warp + lane / shape.lanes; i < s.group_count; i += kWarps * per_warp) {
    for (uint32_t t = 0; t < shape.group_tiles; ++t) {
      const uint32_t column = (s.groups[i] * shape.group_tiles + t) * shape.lanes * 4 + (lane % shape.lanes) * 4;
      const float4 v = load_logits(row, column, shape.V);
      take(v.x, column);
      take(v.y, column + 1);
      take(v.z, column + 2);
      take(v.w, column + 3);
    }
  }
  __syncthreads();
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

// Hands the k largest of the keys out in order. They are all different.
__device__ __forceinline__ void write_best(uint64_t* keys, uint32_t found, uint32_t k, int32_t* tokens, float* values) {
  const auto write = [&](uint32_t place, uint64_t key) {
    tokens[place] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key));
    values[place] = key_value(static_cast<uint32_t>(key >> 32));
  };
  if (found <= kRankMost) {
    if (threadIdx.x >= found) return;
    const uint64_t key = keys[threadIdx.x];
    uint32_t larger = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < found; ++i) larger += keys[i] > key ? 1 : 0;
    if (larger < k) write(larger, key);
    return;
  }
  uint32_t size = 2;
  while (size < found) size <<= 1;
  for (uint32_t i = found + threadIdx.x; i < size; i += kThreads) keys[i] = 0;
  __syncthreads();
  sort_descending(keys, size);
  for (uint32_t i = threadIdx.x; i < k; i += kThreads) write(i, keys[i]);
}

__global__ void __launch_bounds__(kThreads)
    select_kernel(float* logits, const __grid_constant__ SelectCap cap, const __grid_constant__ SelectShape shape,
                  const uint32_t* wanted, const __grid_constant__ SelectScratch scratch, int32_t* tokens, float* values,
                  uint32_t* counts) {
  CARAT_BLOCK_MEMORY(16, uint64_t, keys);
  __shared__ SelectShared s;
  wait_for_predecessor();
  release_successor();
  const uint32_t row = blockIdx.y;
  float* from = logits + static_cast<uint64_t>(row) * shape.V;
  float* maxima = scratch.maxima + static_cast<uint64_t>(row) * kSelectGroups;
  find_maxima(from, cap, shape, maxima);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    s.last = atomicAdd(scratch.counters + row, 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!s.last) return;
  const uint32_t k = min(min(*wanted, shape.V), kSelectMax);
  collect(from, shape, maxima, k, s, keys);
  const bool complete = s.found <= kSelectCapacity;
  if (threadIdx.x == 0) {
    counts[row] = complete ? k : kSelectOverflow;
    scratch.counters[row] = 0;
  }
  if (complete) {
    const uint64_t first = static_cast<uint64_t>(row) * kSelectMax;
    write_best(keys, s.found, k, tokens + first, values + first);
  }
}

__global__ void pick_kernel(const float* logits, const int32_t* tokens, uint32_t count, float* values) {
  wait_for_predecessor();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = logits[tokens[i]];
}

__global__ void softcap_kernel(float* logits, uint64_t count, uint32_t V, float cap, uint32_t* non_finite) {
  wait_for_predecessor();
  release_successor();
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float v = logits[i];
  if (!isfinite(v)) non_finite[i / V] = 1;
  logits[i] = capped(v, cap);
}

// Groups of as few logits as leave at most kSelectGroups of them. There are then more than half as many, twice the
// largest k, unless groups have four logits only: of ordinary logits not many more than k reach the bound. A single row
// is spread over many blocks; with many rows each block's share is larger.
SelectShape shape_of(uint32_t V, uint32_t rows) {
  SelectShape shape{.V = V, .lanes = 1, .group_tiles = 1, .groups = 0, .block_tiles = 0};
  while (shape.lanes < 32 && V > uint64_t{4} * shape.lanes * kSelectGroups) shape.lanes *= 2;
  const uint32_t tiles = (V + kTile - 1) / kTile;
  if (shape.lanes == 32) shape.group_tiles = (tiles + kSelectGroups - 1) / kSelectGroups;
  const uint32_t group_logits = 4 * shape.lanes * shape.group_tiles;
  shape.groups = (V + group_logits - 1) / group_logits;
  constexpr uint32_t kMostBlocks = 256;  // of all rows: two a multiprocessor of a large card, as many as run at once
  const uint32_t rounds = std::clamp((tiles + kWarps - 1) / kWarps * rows / kMostBlocks, 1u, 8u);
  shape.block_tiles = kWarps * rounds * shape.group_tiles;
  return shape;
}

}  // namespace

void pick_logits(const float* logits, const int32_t* tokens, uint32_t count, float* values,
                 const LaunchConfig& launch) {
  launch_kernel("pick_logits", pick_kernel, dim3((count + 255) / 256), dim3(256), 0, launch, logits, tokens, count,
                values);
}

void softcap(float* logits, uint32_t rows, uint32_t V, float cap, uint32_t* non_finite, const LaunchConfig& launch) {
  const uint64_t count = uint64_t{rows} * V;
  launch_kernel("softcap", softcap_kernel, dim3(static_cast<uint32_t>((count + 255) / 256)), dim3(256), 0, launch,
                logits, count, V, cap, non_finite);
}

void softcap_and_select(float* logits, float cap, uint32_t* non_finite, uint32_t rows, uint32_t V, const uint32_t* k,
                        const SelectScratch& scratch, int32_t* tokens, float* values, uint32_t* counts,
                        const LaunchConfig& launch) {
  const SelectShape shape = shape_of(V, rows);
  const uint32_t tiles = (V + kTile - 1) / kTile;
  constexpr size_t kShared = kSelectCapacity * sizeof(uint64_t);
  allow_shared_memory(select_kernel, kShared, "select");
  launch_kernel("select", select_kernel, dim3((tiles + shape.block_tiles - 1) / shape.block_tiles, rows),
                dim3(kThreads), kShared, launch, logits, SelectCap{cap, non_finite}, shape, k, scratch, tokens, values,
                counts);
}

void select_best(const float* logits, uint32_t rows, uint32_t V, const uint32_t* k, const SelectScratch& scratch,
                 int32_t* tokens, float* values, uint32_t* counts, const LaunchConfig& launch) {
  // Without a place to note them nothing is written to the logits.
  softcap_and_select(const_cast<float*>(logits), 0.0f, nullptr, rows, V, k, scratch, tokens, values, counts, launch);
}

}  // namespace carat::cuda
