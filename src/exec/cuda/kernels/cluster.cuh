#pragma once

// Blocks that run together and reach each other's shared memory (compute capability 9.0).
#include <cuda_runtime.h>

#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CARAT_CLUSTERS 1
#endif

namespace carat::cuda {

// Where `address` of this block's shared memory lies in that of block `rank`.
__device__ __forceinline__ uint32_t in_block(uint32_t address, uint32_t rank) {
  uint32_t there = 0;
#if defined(CARAT_CLUSTERS)
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
#endif
  return there;
}

// To shared memory of another block: `there` is from in_block().
__device__ __forceinline__ void put_in_block(uint32_t there, float value) {
#if defined(CARAT_CLUSTERS)
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
#endif
}
__device__ __forceinline__ void put_in_block(uint32_t there, const uint4& v) {
#if defined(CARAT_CLUSTERS)
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(there), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#endif
}

// What was written to any block's shared memory before arriving is seen after waiting. Every thread does both.
__device__ __forceinline__ void cluster_arrive() {
#if defined(CARAT_CLUSTERS)
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if defined(CARAT_CLUSTERS)
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

}  // namespace carat::cuda
