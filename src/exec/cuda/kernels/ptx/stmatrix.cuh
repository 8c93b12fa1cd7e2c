#pragma once

// stmatrix (sm_90): 8 x 8 matrices from the registers of a warp to shared memory.
#include <cstdint>

namespace carat::cuda {

// Four 8 x 8 matrices of 16-bit elements, transposed on their way to shared memory: lane l names memory row l % 8 of
// matrix l / 8 and holds elements (2t, g) and (2t + 1, g) of each (g = lane / 4, t = lane % 4).
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace carat::cuda
