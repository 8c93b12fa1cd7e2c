#pragma once

// Attention inputs for tests (attention_reference.h), on the device.
#include <cuda_runtime_api.h>

#include <vector>

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/memory.h"
#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/attention/attention_reference.h"

namespace carat::cuda {

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

// A cache on the host and on the device.
struct TestCache : HostCache {
  DeviceArray<__half> device_k, device_v;  // those of a q8_0 cache: scales
  DeviceArray<int8_t> k_quants, v_quants;

  TestCache(uint32_t heads, uint32_t width, uint32_t cell_count, const std::vector<Range>& sequences, uint64_t seed,
            CacheType cache_type = CacheType::kHalf)
      : HostCache(heads, width, cell_count, sequences, seed, cache_type),
        device_k(to_device(k.halves)),
        device_v(to_device(v.halves)) {
    if (type == CacheType::kHalf) return;
    k_quants = to_device(k.levels);
    v_quants = to_device(v.levels);
  }

  KvView view() const {
    if (type == CacheType::kHalf) return {.k = device_k.data(), .v = device_v.data(), .cells = cells};
    return {.cells = cells,
            .k_quants = k_quants.data(),
            .v_quants = v_quants.data(),
            .k_scales = device_k.data(),
            .v_scales = device_v.data()};
  }
};

}  // namespace carat::cuda
