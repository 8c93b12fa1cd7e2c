#pragma once

// Barriers in shared memory (mbarrier, sm_90). A phase ends when all arrivals it was initialised with and all announced
// bytes (transactions) have come; whoever waits names the phase by its parity, 0 for the first one.
// Barriers are named by their address in shared memory.
#include <cstdint>

namespace carat::cuda {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to asynchronous copies and to the other blocks of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives `count` times.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// Arrives once, and announces bytes that asynchronous copies will deliver in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Waits for the end of the phase with this parity.
#define CARAT_MBARRIER_WAIT(scope)              \
  asm volatile(                                 \
      "{\n"                                     \
      ".reg .pred done;\n"                      \
      "again:\n"                                \
      "mbarrier.try_wait.parity.acquire." scope \
      ".shared::cta.b64 done, [%0], %1;\n"      \
      "@done bra finished;\n"                   \
      "bra again;\n"                            \
      "finished:\n"                             \
      "}" ::"r"(barrier),                       \
      "r"(parity)                               \
      : "memory")
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) { CARAT_MBARRIER_WAIT("cta"); }
// The same wait, which also orders what other blocks of the cluster sent to this barrier before it.
__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  CARAT_MBARRIER_WAIT("cluster");
}
#undef CARAT_MBARRIER_WAIT
// Whether the phase has ended. The hardware may suspend the thread for a bounded time before it answers no.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred passed;\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 passed, [%1], %2;\n"
      "selp.u32 %0, 1, 0, passed;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

}  // namespace carat::cuda
