#pragma once

// What the language gives device code, on the emulated machine.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "exec/cuda/emulated/machine.h"

// Words of the language that say nothing here.
#define __noinline__
#define __launch_bounds__(...)
#undef __cluster_dims__
#define __cluster_dims__(...)
// What all threads of a block share: all blocks of a grid do here, which is right where they run one after the other
// and do not look at what they find. Kernels whose blocks wait for one another have CARAT_BLOCK_ARRAY.
#undef __shared__
#define __shared__ thread_local

#define threadIdx (::carat::cuda::emulated::thread_index())
#define blockIdx (::carat::cuda::emulated::block_index())
#define gridDim (::carat::cuda::emulated::grid_size())
#define blockDim (::carat::cuda::emulated::block_size())

namespace carat::cuda {

// --- lanes of a warp, all of which take part ------------------------------------------------------------------------
template <typename T>
T __shfl_sync(uint32_t, T value, uint32_t lane) {
  using Words = std::array<uint32_t, sizeof(T) / 4>;
  emulated::LaneWords mine{};
  std::ranges::copy(std::bit_cast<Words>(value), mine.begin());
  const emulated::LaneWords& from = emulated::meet(mine)[lane % emulated::kWarp];
  Words words;
  std::copy_n(from.begin(), words.size(), words.begin());
  return std::bit_cast<T>(words);
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, uint32_t distance) {
  return __shfl_sync(mask, value, threadIdx.x % emulated::kWarp ^ distance);
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, uint32_t distance) {
  const uint32_t lane = threadIdx.x % emulated::kWarp;
  return __shfl_sync(mask, value, lane + distance < emulated::kWarp ? lane + distance : lane);
}
inline uint32_t __reduce_max_sync(uint32_t, uint32_t value) {
  uint32_t most = 0;
  for (const emulated::LaneWords& lane : emulated::meet({value})) most = std::max(most, lane[0]);
  return most;
}
inline uint32_t __reduce_min_sync(uint32_t, uint32_t value) {
  uint32_t least = 0xffffffffu;
  for (const emulated::LaneWords& lane : emulated::meet({value})) least = std::min(least, lane[0]);
  return least;
}

inline uint32_t __reduce_add_sync(uint32_t, uint32_t value) {
  uint32_t sum = 0;
  for (const emulated::LaneWords& lane : emulated::meet({value})) sum += lane[0];
  return sum;
}
inline uint32_t __ballot_sync(uint32_t, bool value) {
  const auto& lanes = emulated::meet({value});
  uint32_t bits = 0;
  for (uint32_t lane = 0; lane < emulated::kWarp; ++lane) bits |= lanes[lane][0] << lane;
  return bits;
}
inline bool __any_sync(uint32_t mask, bool value) { return __ballot_sync(mask, value) != 0; }
template <typename T>
T __shfl_up_sync(uint32_t mask, T value, uint32_t distance) {
  const uint32_t lane = threadIdx.x % emulated::kWarp;
  return __shfl_sync(mask, value, lane >= distance ? lane - distance : lane);
}

// --- barriers --------------------------------------------------------------------------------------------------------
inline void __syncwarp() { emulated::meet({}); }
inline void __syncthreads() { emulated::block_barrier(0, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(uint32_t) { emulated::pause("what other blocks write"); }
[[noreturn]] inline void __trap() { std::abort(); }
inline long long clock64() { return static_cast<long long>(emulated::clock()); }

// --- numbers ---------------------------------------------------------------------------------------------------------
inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline uint32_t max(uint32_t a, uint32_t b) { return a < b ? b : a; }
inline int min(int a, int b) { return a < b ? a : b; }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float2int_rn(float x) {
  // As the card does: what is too large becomes the largest there is, NaN becomes 0.
  if (!(fabsf(x) < 2147483648.0f)) return isnan(x) ? 0 : x > 0.0f ? 2147483647 : -2147483647 - 1;
  return static_cast<int>(rintf(x));
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline int __clz(uint32_t x) { return std::countl_zero(x); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t chosen = selector >> (4 * i) & 15;
    auto byte = static_cast<uint32_t>(bytes >> (8 * (chosen & 7)) & 0xff);
    if ((chosen & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;  // the sign of it
    result |= byte << (8 * i);
  }
  return result;
}
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return sum;
}
inline int __popc(uint32_t x) { return std::popcount(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
// Rounded once, as the card does.
inline __half2 __hfma2(const __half2& a, const __half2& b, const __half2& c) {
  const float2 x = __half22float2(a), y = __half22float2(b), z = __half22float2(c);
  const auto fused = [](float u, float v, float w) { return static_cast<float>(double{u} * v + w); };
  return __floats2half2_rn(fused(x.x, y.x, z.x), fused(x.y, y.y, z.y));
}

// --- memory ----------------------------------------------------------------------------------------------------------
template <typename T>
T __ldg(const T* at) {
  return *at;
}
template <typename T>
T __ldcg(const T* at) {
  return *at;
}
template <typename T>
T __ldcs(const T* at) {
  return *at;
}
template <typename T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return std::exchange(*at, *at + value);
}
template <typename T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  return std::exchange(*at, std::max(*at, value));
}
template <typename T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return std::exchange(*at, value);
}

}  // namespace carat::cuda
