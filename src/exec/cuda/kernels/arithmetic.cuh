#pragma once

// Arithmetic that the hardware has an instruction for and the language no word.
#include <cstdint>

namespace carat::cuda {

// The larger one, or NaN where either is; fmaxf would drop the NaN, and a broken activation with it.
__device__ __forceinline__ float max_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

__device__ __forceinline__ float reciprocal_fast(float v) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(v));
  return inverse;
}
// Of numbers that are not tiny: the sum with an epsilon.
__device__ __forceinline__ float rsqrt_fast(float v) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
  return root;
}

// Products of unsigned and signed bytes.
__device__ __forceinline__ int dot4_unsigned(uint32_t w, uint32_t x, int sum) {
  int total;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(w), "r"(x), "r"(sum));
  return total;
}

}  // namespace carat::cuda
