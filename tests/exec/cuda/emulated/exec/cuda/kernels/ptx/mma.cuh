#pragma once

// attention_mma.cuh on the emulated machine.
#include <cuda_fp16.h>

#include <array>
#include <bit>
#include <cstring>

#include "exec/cuda/emulated/language.h"

namespace carat::cuda {

inline uint32_t shared_address(const void* pointer) { return emulated::shared_address_of(pointer); }

template <int kThreads>
void named_barrier(int id) {
  emulated::block_barrier(static_cast<uint32_t>(id), kThreads);
}
inline float exp2_fast(float x) { return exp2f(x); }
inline uint32_t pack_half2(float low, float high) {
  return std::bit_cast<uint32_t>(std::array<__half, 2>{__float2half(low), __float2half(high)});
}

inline void copy_async(uint32_t destination, const void* source, bool valid) {
  emulated::start_own_copy(destination, valid ? source : nullptr, 16);
}
inline void copy_async_8(uint32_t destination, const void* source, bool valid) {
  emulated::start_own_copy(destination, valid ? source : nullptr, 8);
}
inline void copy_async_commit() { emulated::commit_own_copies(); }
template <int kPending>
void copy_async_wait() {
  emulated::wait_for_own_copies(kPending);
}

template <typename T>
T load_shared(uint32_t address) {
  T value;
  std::memcpy(&value, emulated::shared_at(address, sizeof value), sizeof value);
  return value;
}
template <typename T>
void store_shared(uint32_t address, const T& value) {
  std::memcpy(emulated::shared_at(address, sizeof value), &value, sizeof value);
}
inline void store_shared_16(uint32_t address, const uint4& value) { store_shared(address, value); }
inline uint32_t load_shared_2(uint32_t address) { return load_shared<uint16_t>(address); }
inline uint32_t load_shared_4(uint32_t address) { return load_shared<uint32_t>(address); }
inline uint2 load_shared_8(uint32_t address) { return load_shared<uint2>(address); }
inline uint4 load_shared_16(uint32_t address) { return load_shared<uint4>(address); }
inline float2 load_shared_2_floats(uint32_t address) { return load_shared<float2>(address); }
inline float4 load_shared_4_floats(uint32_t address) { return load_shared<float4>(address); }

inline uint32_t load_acquire(const uint32_t* word) {
  emulated::pause("what other blocks write");
  return *word;
}

// Half `index` of row `row` of four 8 x 8 matrices whose rows the lanes have named.
inline uint32_t matrix_half(const std::array<emulated::LaneWords, 32>& lanes, uint32_t matrix, uint32_t row,
                            uint32_t index) {
  uint16_t half;
  std::memcpy(&half, emulated::shared_at(lanes[8 * matrix + row][0], 16) + 2 * index, sizeof half);
  return half;
}
inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  const auto& lanes = emulated::meet({address});
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (uint32_t m = 0; m < 4; ++m) {
    r[m] = matrix_half(lanes, m, g, 2 * t) | matrix_half(lanes, m, g, 2 * t + 1) << 16;
  }
  emulated::meet({});  // nobody writes what others still read
}
inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  const auto& lanes = emulated::meet({address});
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (uint32_t m = 0; m < 4; ++m) {
    r[m] = matrix_half(lanes, m, 2 * t, g) | matrix_half(lanes, m, 2 * t + 1, g) << 16;
  }
  emulated::meet({});
}

inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const auto& lanes = emulated::meet({a[0], a[1], a[2], a[3], b0, b1});
  const auto half = [](uint32_t word, uint32_t index) {
    return __half2float(std::bit_cast<__half>(static_cast<uint16_t>(word >> (16 * index))));
  };
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t row = i / 2, column = 2 * t + i % 2;  // of rows g and g + 8
    for (uint32_t k = 0; k < 16; ++k) {
      const uint32_t word = lanes[4 * g + k % 8 / 2][row + k / 8 * 2];
      c[i] += half(word, k % 2) * half(lanes[4 * column + k % 8 / 2][4 + k / 8], k % 2);
    }
  }
}

}  // namespace carat::cuda
