#pragma once

// What the tests of CUDA kernels share: skipping where there is no GPU, moving data, and comparing results.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/device/launch.h"
#include "exec/cuda/device/memory.h"
#include "exec/cuda/device/stream.h"
#include "support/random.h"

namespace carat::cuda {

// Tests named *Small* touch every kernel with little data: the set for compute-sanitizer.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "skipped: no GPU";
    sm_count_ = attribute(cudaDevAttrMultiProcessorCount);
    shared_memory_ = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    stream_ = std::make_unique<Stream>();
    // Programmatic dependent launch, as the executor uses it where the card has it.
    how_ = {stream_->get(), attribute(cudaDevAttrComputeCapabilityMajor) >= 9};
  }

  static uint32_t attribute(cudaDeviceAttr name) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, name, 0), "cudaDeviceGetAttribute");
    return static_cast<uint32_t>(value);
  }

  void synchronise() const { stream_->synchronise(); }

  // Runs `work` twice, each time over outputs filled with NaN, and returns what it wrote. Both runs must agree bit for
  // bit: no kernel here may depend on the order its blocks run in.
  template <typename T>
  std::vector<T> run_twice(const DeviceArray<T>& out, const std::function<void()>& work) const;

  uint32_t sm_count_ = 0, shared_memory_ = 0;
  std::unique_ptr<Stream> stream_;
  LaunchConfig how_;
};

// Kernels run on a stream that does not wait for what was cleared or copied without one.
inline void settle() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

template <typename T>
DeviceArray<T> upload(const std::vector<T>& values) {
  DeviceArray<T> array(values.size(), "test input");
  check(cudaMemcpy(array.data(), values.data(), array.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  settle();
  return array;
}

template <typename T>
std::vector<T> download(const DeviceArray<T>& array) {
  std::vector<T> values(array.size());
  check(cudaMemcpy(values.data(), array.data(), array.bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return values;
}

// All bits set: NaN in every float format, and no valid index.
template <typename T>
void poison(const DeviceArray<T>& array) {
  check(cudaMemset(array.data(), 0xff, array.bytes()), "cudaMemset");
  settle();
  check(cudaDeviceSynchronize(), "cudaMemset");
}

template <typename T>
DeviceArray<T> poisoned(size_t count) {
  DeviceArray<T> array(count, "test output");
  poison(array);
  return array;
}

template <typename T>
DeviceArray<T> zeros(size_t count) {
  DeviceArray<T> array(count, "test scratch");
  check(cudaMemset(array.data(), 0, array.bytes()), "cudaMemset");
  settle();
  check(cudaDeviceSynchronize(), "cudaMemset");
  return array;
}

template <typename T>
std::vector<T> GpuTest::run_twice(const DeviceArray<T>& out, const std::function<void()>& work) const {
  std::vector<T> first;
  for (int run = 0; run < 2; ++run) {
    poison(out);
    work();
    synchronise();
    std::vector<T> values = download(out);
    if (run == 0) {
      first = std::move(values);
    } else {
      EXPECT_EQ(std::memcmp(first.data(), values.data(), out.bytes()), 0) << "two runs differ";
    }
  }
  return first;
}

inline float value_of(float v) { return v; }
inline float value_of(__half v) { return __half2float(v); }
inline float value_of(__nv_bfloat16 v) { return __bfloat162float(v); }

inline std::vector<__nv_bfloat16> to_bfloats(const std::vector<float>& values) {
  std::vector<__nv_bfloat16> rounded(values.size());
  for (size_t i = 0; i < values.size(); ++i) rounded[i] = __float2bfloat16_rn(values[i]);
  return rounded;
}

template <typename T>
std::vector<float> to_floats(const std::vector<T>& values) {
  std::vector<float> floats(values.size());
  for (size_t i = 0; i < values.size(); ++i) floats[i] = value_of(values[i]);
  return floats;
}

// Values of the given type and of deviation `scale`; with their exact fp32 values beside them.
template <typename T>
struct RandomValues {
  std::vector<T> typed;
  std::vector<float> floats;
  DeviceArray<T> device;
  RandomValues(size_t count, float scale, uint64_t seed) {
    floats = test::Random(seed).normals(count, scale);
    if constexpr (std::is_same_v<T, float>) {
      typed = floats;
    } else {
      typed = to_bfloats(floats);
      floats = to_floats(typed);
    }
    device = upload(typed);
  }
};

// The cores of the host, for references.
inline ThreadPool& host_pool() {
  static ThreadPool pool(usable_threads());
  return pool;
}

inline void on_host_cores(size_t count, const std::function<void(size_t)>& work) {
  host_pool().parallel_for(count, 1, [&](size_t begin, size_t end, unsigned) {
    for (size_t i = begin; i < end; ++i) work(i);
  });
}

// sum a[i] b[i] in double; four sums, so that additions do not wait for one another.
template <typename A, typename B>
double dot_double(const A* a, const B* b, size_t count) {
  double sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (size_t j = 0; j < 4; ++j) sums[j] += static_cast<double>(a[i + j]) * static_cast<double>(b[i + j]);
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sums[0] + sums[1] + sums[2] + sums[3];
}

template <typename A>
double norm_double(const A* a, size_t count) {
  return std::sqrt(dot_double(a, a, count));
}

inline double gelu_double(double x) {
  return 0.5 * x * (1.0 + std::tanh(0.79788456080286535588 * x * (1.0 + 0.044715 * x * x)));
}

// ||out - ref|| / ||ref|| and the largest |out - ref|; NaN in out shows as NaN or infinity, never as a pass.
struct Difference {
  double relative = 0.0, largest = 0.0;
};

template <typename T>
Difference difference(const std::vector<T>& out, const std::vector<double>& reference) {
  Difference result;
  EXPECT_EQ(out.size(), reference.size());
  if (out.size() != reference.size()) return {INFINITY, INFINITY};
  double errors = 0.0, squares = 0.0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double error = std::abs(static_cast<double>(value_of(out[i])) - reference[i]);
    if (!(error <= result.largest)) result.largest = std::isnan(error) ? INFINITY : error;
    errors += error * error;
    squares += reference[i] * reference[i];
  }
  result.relative = squares > 0.0 ? std::sqrt(errors / squares) : result.largest;
  return result;
}

}  // namespace carat::cuda
