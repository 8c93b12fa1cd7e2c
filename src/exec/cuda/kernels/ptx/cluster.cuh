#pragma once

// Clusters (sm_90): blocks that run at the same time and reach each other's shared memory.
#include <cuda_runtime.h>

#include <cstdint>

#include "exec/cuda/kernels/ptx/architecture.cuh"

namespace carat::cuda {

// The address at which the other blocks of the cluster find `address` of block `rank`'s shared memory.
__device__ __forceinline__ uint32_t mapa(uint32_t address, uint32_t rank) {
  uint32_t remote = 0;
#if defined(CARAT_SM90)
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
#endif
  return remote;
}

// Stores to the shared memory of another block: `remote` is from mapa().
__device__ __forceinline__ void st_cluster(uint32_t remote, float value) {
#if defined(CARAT_SM90)
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
#endif
}
__device__ __forceinline__ void st_cluster(uint32_t remote, const uint4& v) {
#if defined(CARAT_SM90)
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(remote), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#endif
}

// Stores a word, or 16 bytes, to the shared memory of another block without waiting; its bytes count towards the phase
// of `remote_barrier` (mbarrier.cuh). Both addresses are from mapa() and of the same block.
__device__ __forceinline__ void st_async(uint32_t remote, uint32_t remote_barrier, uint32_t value) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(remote), "r"(value),
               "r"(remote_barrier)
               : "memory");
}
__device__ __forceinline__ void st_async(uint32_t remote, uint32_t remote_barrier, const uint32_t (&words)[4]) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(remote),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(remote_barrier)
      : "memory");
}

// The cluster's barrier, in two halves: what any thread of the cluster wrote before it arrived, every thread sees after
// it has waited. Every thread does both.
__device__ __forceinline__ void cluster_arrive() {
#if defined(CARAT_SM90)
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if defined(CARAT_SM90)
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

}  // namespace carat::cuda
