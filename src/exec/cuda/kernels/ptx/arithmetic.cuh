#pragma once

// Single instructions of arithmetic that C++ has no word for.
#include <cstdint>

namespace carat::cuda {

// The larger of two numbers, or NaN where either is; fmaxf would drop the NaN, and a broken activation with it.
__device__ __forceinline__ float max_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// 1 / v, approximately; 0 for what is larger than 2^126.
__device__ __forceinline__ float reciprocal_fast(float v) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(v));
  return inverse;
}
// 1 / sqrt(v), approximately. Subnormal numbers count as 0, so v should be one that is not tiny, such as a sum with an
// epsilon.
__device__ __forceinline__ float rsqrt_fast(float v) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
  return root;
}

// sum plus the products of four unsigned bytes of w with the four signed bytes of x. (__dp4a takes both signed or both
// unsigned.)
__device__ __forceinline__ int dp4a_unsigned_signed(uint32_t w, uint32_t x, int sum) {
  int total;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(w), "r"(x), "r"(sum));
  return total;
}

}  // namespace carat::cuda
