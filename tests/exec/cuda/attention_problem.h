#pragma once

// Attention inputs for tests, and what the result must be: a reference in double precision over the values the kernels
// compute with: those of the fp16 cache, or of the q8_0 cache after expansion to fp16.
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/memory.h"
#include "exec/cuda/kernels/attention.h"
#include "exec/kv_rounding.h"
#include "support/random.h"

namespace carat::cuda {

// Runs work(0) ... work(count - 1) on all cores.
inline void on_all_cores(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (size_t t = 1; t < std::min(cores, count); ++t) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
}

template <typename T>
DeviceArray<T> to_device(const std::vector<T>& values) {
  DeviceArray<T> array(values.size(), "test input");
  check(cudaMemcpy(array.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // kernels run on streams that do not wait for this one
  return array;
}

template <typename T>
std::vector<T> to_host(const DeviceArray<T>& array) {
  std::vector<T> values(array.size());
  check(cudaMemcpy(values.data(), array.data(), values.size() * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return values;
}

// Uniform values of deviation `scale`, rounded to fp16. Drawn from a table, because the conversion is slow on the host.
class RandomHalves {
 public:
  explicit RandomHalves(float scale) : table_(kSteps) {
    for (uint32_t i = 0; i < kSteps; ++i) {
      table_[i] = __float2half((static_cast<float>(2 * i + 1) / kSteps - 1.0f) * 1.7320508f * scale);
    }
  }

  void fill(uint64_t seed, __half* values, size_t count) const {
    test::Random random(seed);
    for (size_t i = 0; i < count;) {
      uint64_t bits = random.bits();
      for (int k = 0; k < 4 && i < count; ++k, bits >>= 16) values[i++] = table_[bits % kSteps];
    }
  }

 private:
  static constexpr uint32_t kSteps = 4096;
  std::vector<__half> table_;
};

enum class CacheType { kHalf, kQ8 };

// A cache whose sequences hold positions [first, end). Every other slot is NaN, as uninitialised memory may be; of a
// q8_0 cache that is the scale, and its int8 are as large as they can be.
struct TestCache {
  struct Range {
    uint32_t first, end;
  };

  uint32_t Hkv, hd, slots;
  CacheType type;
  std::vector<float> k, v;                 // [sequence][Hkv][slots][hd], the values the device computes with
  DeviceArray<__half> device_k, device_v;  // those of a q8_0 cache: scales
  DeviceArray<int8_t> k_quants, v_quants;

  TestCache(uint32_t heads, uint32_t width, uint32_t slot_count, const std::vector<Range>& sequences, uint64_t seed,
            CacheType cache_type = CacheType::kHalf)
      : Hkv(heads), hd(width), slots(slot_count), type(cache_type) {
    device_k = fill(k, k_quants, sequences, 2 * seed);
    device_v = fill(v, v_quants, sequences, 2 * seed + 1);
  }

  KvView view() const {
    if (type == CacheType::kHalf) return {.k = device_k.data(), .v = device_v.data(), .slots = slots};
    return {.slots = slots,
            .k_quants = k_quants.data(),
            .v_quants = v_quants.data(),
            .k_scales = device_k.data(),
            .v_scales = device_v.data()};
  }

 private:
  // Returns the cache's halves: values, or scales of the values in `quants`.
  DeviceArray<__half> fill(std::vector<float>& values, DeviceArray<int8_t>& quants, const std::vector<Range>& sequences,
                           uint64_t seed) const {
    __half_raw nan;
    nan.x = 0x7e00;
    std::vector<__half> halves(sequences.size() * Hkv * slots * hd, __half(nan));
    const bool quantised = type == CacheType::kQ8;
    std::vector<int8_t> levels(quantised ? halves.size() : 0, 127);
    std::vector<__half> scales(quantised ? halves.size() / hd * kv_scale_columns(hd) : 0, __half(nan));
    values.assign(halves.size(), NAN);
    const RandomHalves random(1.0f);
    constexpr uint32_t kAtOnce = 256;
    for (size_t head = 0; head < sequences.size() * Hkv; ++head) {
      const Range& range = sequences[head / Hkv];
      on_all_cores((range.end - range.first + kAtOnce - 1) / kAtOnce, [&](size_t part) {
        const uint32_t first = range.first + static_cast<uint32_t>(part) * kAtOnce;
        for (uint32_t p = first; p < std::min(first + kAtOnce, range.end); ++p) {
          const size_t row = head * slots + p % slots;
          random.fill(seed + row * 0x9e3779b97f4a7c15u, &halves[row * hd], hd);
          for (size_t i = row * hd; i < (row + 1) * hd; ++i) values[i] = __half2float(halves[i]);
          if (quantised) quantise(&values[row * hd], &levels[row * hd], &scales[row * kv_scale_columns(hd)]);
        }
      });
    }
    if (!quantised) return to_device(halves);
    quants = to_device(levels);
    return to_device(scales);
  }

  // Rounds a row, and replaces its values by what the kernels make of it: level times scale, rounded to fp16.
  void quantise(float* values, int8_t* levels, __half* scales) const {
    std::fill_n(scales, kv_scale_columns(hd), __float2half(0.0f));
    for (uint32_t i = 0; i < hd; i += kKvScaleBlock) {
      const quant::BlockQ8_0 block = exec::round_q8_0(values + i);
      __half_raw scale;
      scale.x = block.d;
      scales[i / kKvScaleBlock] = __half(scale);
      for (uint32_t e = 0; e < kKvScaleBlock; ++e) {
        levels[i + e] = block.quants[e];
        values[i + e] = half_to_float(float_to_half(half_to_float(block.d) * static_cast<float>(block.quants[e])));
      }
    }
  }
};

// One query: hd values of one head at one position of a sequence.
struct TestQuery {
  const __half* q;
  uint32_t head, position, sequence;
};

inline double dot(const float* a, const float* b, uint32_t count) {
  double sums[8] = {};  // independent, so that the compiler can use vectors; count is a multiple of 16
  for (uint32_t i = 0; i < count; i += 8) {
    for (uint32_t j = 0; j < 8; ++j) sums[j] += double{a[i + j]} * double{b[i + j]};
  }
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

inline std::vector<double> reference_attention(const AttentionShape& shape, const TestCache& cache,
                                               const TestQuery& query) {
  const uint32_t kv_head = query.head / (shape.H / shape.Hkv), end = query.position + 1;
  const uint32_t first = shape.window != 0 && end > shape.window ? end - shape.window : 0;
  const size_t base = (size_t{query.sequence} * shape.Hkv + kv_head) * cache.slots;
  const auto offset = [&](uint32_t p) { return (base + p % cache.slots) * shape.hd; };
  std::vector<float> q(shape.hd);
  for (uint32_t i = 0; i < shape.hd; ++i) q[i] = __half2float(query.q[i]);
  std::vector<double> scores(end - first);
  for (uint32_t p = first; p < end; ++p) scores[p - first] = dot(q.data(), &cache.k[offset(p)], shape.hd);
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> out(shape.hd, 0.0);
  double sum = 0.0;
  for (uint32_t p = first; p < end; ++p) {
    const double weight = std::exp(scores[p - first] - largest);
    const float* value = &cache.v[offset(p)];
    sum += weight;
    for (uint32_t i = 0; i < shape.hd; ++i) out[i] += weight * double{value[i]};
  }
  for (double& x : out) x /= sum;
  return out;
}

// Distance of computed rows from the reference: ||out - ref|| / ||ref|| over everything added, and the largest
// difference of one element in units of that element's allowance.
class Distance {
 public:
  // Allowance: `relative` of the element plus `absolute` of the row's root mean square.
  Distance(double relative, double absolute) : relative_(relative), absolute_(absolute) {}

  void add(const std::vector<double>& reference, const std::function<double(size_t)>& computed) {
    double square = 0.0;
    for (const double r : reference) square += r * r;
    const double rms = std::sqrt(square / static_cast<double>(reference.size()));
    for (size_t i = 0; i < reference.size(); ++i) {
      const double error = std::abs(computed(i) - reference[i]);
      const double excess = error / (relative_ * std::abs(reference[i]) + absolute_ * rms);
      if (!(excess <= worst_)) worst_ = std::isnan(excess) ? INFINITY : excess;
      errors_ += error * error;
    }
    squares_ += square;
  }
  // NaN where any computed element was.
  double norm() const { return std::sqrt(errors_ / squares_); }
  double worst() const { return worst_; }

 private:
  double relative_, absolute_;
  double errors_ = 0.0, squares_ = 0.0, worst_ = 0.0;
};

}  // namespace carat::cuda
