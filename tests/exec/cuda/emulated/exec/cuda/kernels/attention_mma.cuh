#pragma once

// attention_mma.cuh and what the language itself gives device code, on the emulated machine: what prompt
// attention by warpgroups uses of it.
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "exec/cuda/emulated/machine.h"

namespace carat::cuda {

#define threadIdx (::carat::cuda::emulated::thread_index())
#define blockIdx (::carat::cuda::emulated::block_index())

inline uint32_t __shfl_xor_sync(uint32_t, uint32_t value, uint32_t distance) {
  return emulated::shuffle(value, threadIdx.x % 32 ^ distance);
}
inline float __shfl_xor_sync(uint32_t mask, float value, uint32_t distance) {
  return std::bit_cast<float>(__shfl_xor_sync(mask, std::bit_cast<uint32_t>(value), distance));
}
inline uint32_t __shfl_sync(uint32_t, uint32_t value, uint32_t lane) { return emulated::shuffle(value, lane); }
inline void __syncwarp() { emulated::warp_barrier(); }
inline void __syncthreads() { emulated::block_barrier(0, 0); }
template <int kThreads>
void named_barrier(int id) {
  emulated::block_barrier(static_cast<uint32_t>(id), kThreads);
}
inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline float exp2_fast(float x) { return std::exp2(x); }
inline uint32_t pack_half2(float low, float high) {
  return std::bit_cast<uint32_t>(std::array<__half, 2>{__float2half(low), __float2half(high)});
}

inline void copy_async(uint32_t destination, const void* source, bool valid) {
  uint8_t* to = emulated::shared_at(destination, 16);
  if (valid) {
    std::memcpy(to, source, 16);
  } else {
    std::memset(to, 0, 16);
  }
}
inline void copy_async_commit() {}
template <int kPending>
void copy_async_wait() {}

template <typename T>
T load_shared(uint32_t address) {
  T value;
  std::memcpy(&value, emulated::shared_at(address, sizeof value), sizeof value);
  return value;
}
inline void store_shared(uint32_t address, uint32_t value) {
  std::memcpy(emulated::shared_at(address, sizeof value), &value, sizeof value);
}
inline void store_shared_16(uint32_t address, const uint4& value) {
  std::memcpy(emulated::shared_at(address, sizeof value), &value, sizeof value);
}
inline uint32_t load_shared_4(uint32_t address) { return load_shared<uint32_t>(address); }
inline uint4 load_shared_16(uint32_t address) { return load_shared<uint4>(address); }

}  // namespace carat::cuda
