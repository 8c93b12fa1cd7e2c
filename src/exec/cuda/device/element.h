#pragma once

#include <cstdint>

// The element types that only CUDA's headers define, and their sizes, so that memory can be planned (and the plan be
// tested) where no CUDA is installed. executor_state.cc checks the sizes against the real types.
struct __half;
struct __nv_bfloat16;
struct float2;

namespace carat::cuda {

template <typename T>
inline constexpr uint64_t kElementBytes = sizeof(T);
template <>
inline constexpr uint64_t kElementBytes<__half> = 2;
template <>
inline constexpr uint64_t kElementBytes<__nv_bfloat16> = 2;
template <>
inline constexpr uint64_t kElementBytes<float2> = 8;

}  // namespace carat::cuda
