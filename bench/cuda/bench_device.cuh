#pragma once

// What the benchmarks of matrix products share: random data larger than the caches, and times of captured launches.
#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/memory.h"
#include "exec/cuda/device/stream.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

inline constexpr uint64_t kColdBytes = uint64_t{256} << 20;  // several times the L2 of any card
inline constexpr uint64_t kPoolBytes = uint64_t{2} << 30;

// Random words with fixed bits: (word & keep) | set. Zeros would run faster than real data.
static __global__ void fill_kernel(uint32_t* words, uint64_t count, uint32_t keep, uint32_t set) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count; i += uint64_t{gridDim.x} * blockDim.x) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    words[i] = (static_cast<uint32_t>(x >> 27) & keep) | set;
  }
}

struct Pattern {
  uint32_t keep, set;
};
inline constexpr Pattern kAnyBits{0xffffffffu, 0};
inline constexpr Pattern kHalves{0x03ff03ffu, 0x20002000u};   // fp16 in 2^-7 ... 2^-6
inline constexpr Pattern kBfloats{0x807f807fu, 0x3c003c00u};  // bf16 of either sign in 2^-7 ... 2^-6
inline constexpr Pattern kFloats{0x807fffffu, 0x3f800000u};   // fp32 of either sign in 1 ... 2

inline void fill(const void* memory, uint64_t bytes, const Pattern& pattern) {
  fill_kernel<<<2048, 256>>>(static_cast<uint32_t*>(const_cast<void*>(memory)), bytes / 4, pattern.keep, pattern.set);
  check_launch("fill_kernel");
}

template <typename T>
DeviceArray<T> filled(uint64_t count, const Pattern& pattern) {
  DeviceArray<T> array(count, "benchmark input");
  fill(array.data(), array.bytes(), pattern);
  return array;
}

template <typename T>
DeviceArray<T> to_device(const std::vector<T>& values) {
  DeviceArray<T> array(values.size(), "benchmark input");
  check(cudaMemcpy(array.data(), values.data(), array.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  return array;
}

// Median milliseconds of one of `launches` calls of `work` (which gets the number of the call), captured as one graph.
inline double median_ms(const Stream& stream, uint32_t launches, const std::function<void(uint32_t)>& work) {
  work(0);  // sets kernel attributes and loads modules
  stream.synchronise();
  const Graph graph = Graph::capture(stream.get(), [&] {
    for (uint32_t i = 0; i < launches; ++i) work(i);
  });
  graph.launch(stream.get());
  std::vector<float> times;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const Event start(true), stop(true);
    start.record(stream.get());
    graph.launch(stream.get());
    stop.record(stream.get());
    stop.synchronise();
    times.push_back(stop.since(start));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] / launches;
}

// How many copies of `bytes` are more than the caches hold.
inline uint32_t copies_of(uint64_t bytes) {
  return static_cast<uint32_t>(std::clamp<uint64_t>((kColdBytes + bytes - 1) / bytes, 1, kPoolBytes / bytes));
}

// A random matrix at `memory`.
inline PackedView random_matrix(Packing packing, uint32_t rows, uint32_t cols, char* memory) {
  PackedView view{.packing = packing, .rows = rows, .cols = cols, .steps = steps_of(cols)};
  const PackedBytes bytes = packed_bytes(packing);
  const uint64_t cells = uint64_t{rows} * view.steps;
  const auto plane = [&](uint64_t step_bytes, const Pattern& pattern) -> const void* {
    if (step_bytes == 0) return nullptr;
    char* at = memory;
    memory += (cells * step_bytes + 255) / 256 * 256;
    fill(at, cells * step_bytes, pattern);
    return at;
  };
  view.quants = plane(bytes.quants, kAnyBits);
  view.high = plane(bytes.high, kAnyBits);
  view.scales = plane(bytes.scales, kHalves);  // also valid headers and integer scales
  view.super = plane(bytes.super, kHalves);
  return view;
}

// Where groups begin when each of `total` rows picks a random expert.
inline std::vector<uint32_t> random_offsets(uint32_t experts, uint32_t total) {
  std::vector<uint32_t> counts(experts, 0);
  uint64_t state = 1;
  for (uint32_t i = 0; i < total; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ++counts[(state >> 33) % experts];
  }
  std::vector<uint32_t> offsets(1, 0);
  for (const uint32_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

}  // namespace carat::cuda
