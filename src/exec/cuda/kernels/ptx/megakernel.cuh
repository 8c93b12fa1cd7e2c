#pragma once

// Device code: what the token kernel does with memory and barriers beyond what the language has words for. Everything
// of it that cannot run on a CPU is here, in arithmetic.cuh, attention_mma.cuh and hopper.cuh: the tests put other
// functions in their place and run the kernel on a machine that is emulated (tests/exec/cuda/emulated).
#include "exec/cuda/kernels/megakernel/megakernel_shape.h"
#include "exec/cuda/kernels/ptx/cp_async_bulk.cuh"
#include "exec/cuda/kernels/ptx/mbarrier.cuh"
#include "exec/cuda/kernels/ptx/mma.cuh"
#include "exec/cuda/kernels/ptx/setmaxnreg.cuh"

// Where they exist; the plan chooses the kernel there only.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CARAT_MEGAKERNEL_INSTRUCTIONS 1
#endif

// A block's shared memory.
extern __shared__ __align__(128) unsigned char carat_megakernel_shared[];

namespace carat::cuda {

// This thread's number and the address of carat_megakernel_shared, read anew: what is kept over a call may go to local
// memory.
__device__ __forceinline__ void find_again(uint32_t& thread, uint32_t& shared) {
  asm volatile("mov.u32 %0, %tid.x;" : "=r"(thread));
  asm volatile("mov.u32 %0, carat_megakernel_shared;" : "=r"(shared));
}

// Keep what was worked out before from being worked out again, or later.
__device__ __forceinline__ void pin(uint32_t& v) { asm volatile("" : "+r"(v)); }
__device__ __forceinline__ void pin(void*& v) { asm volatile("" : "+l"(v)); }

// --- barriers of the hardware ----------------------------------------------------------------------------------------
// Holds back the threads that compute; the warps that load weights go their own way.
__device__ __forceinline__ void compute_barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(kMegakernelThreads) : "memory");
}
// The arrival of those who do not wait at a barrier of the threads that compute.
__device__ __forceinline__ void named_barrier_arrive(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kMegakernelThreads) : "memory");
}

// --- shared memory that other warps write meanwhile, by its address --------------------------------------------------
// Read anew every time.
__device__ __forceinline__ uint32_t read_shared(uint32_t address) {
  uint32_t v;
  asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void write_shared(uint32_t address, uint32_t v) {
  asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
// The same by a pointer that is known to be in shared memory.
__device__ __forceinline__ uint32_t read_again(const volatile uint32_t* word) { return *word; }
// By its first lane, for a warp whose lanes are together and stay so: it is one store, and no branch. (In a stage with
// nothing to do no barrier follows. One of the warp's would be needed if the compiler made a branch of it; it moves
// the instructions of a layer, and has not been measured.)
__device__ __forceinline__ void write_for_warp(volatile uint32_t& word, uint32_t v) {
  if (threadIdx.x % 32 == 0) word = v;
}
// Counts the warps that have put their part of something in shared memory. Who counts sees what those before it put.
__device__ __forceinline__ uint32_t count_up(uint32_t& made) {
  uint32_t before;
  asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "r"(shared_address(&made))
               : "memory");
  return before;
}

// --- memory that other blocks write or read meanwhile ----------------------------------------------------------------
// Each of the words on its own cannot be torn.
__device__ __forceinline__ void store_word(void* at, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(word) : "memory");
}
__device__ __forceinline__ void store_word(void* at, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}
__device__ __forceinline__ void store_words(void* at, const uint4& v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void store_words(void* at, const ulonglong2& v) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(v.x), "l"(v.y) : "memory");
}
// 16 bytes that cannot be torn.
__device__ __forceinline__ void store_16(void* at, uint64_t low, uint64_t high) {
  asm volatile("{ .reg .b128 word; mov.b128 word, {%1, %2}; st.relaxed.gpu.global.b128 [%0], word; }" ::"l"(at),
               "l"(low), "l"(high)
               : "memory");
}

__device__ __forceinline__ uint32_t load_word_4(const void* at) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
__device__ __forceinline__ uint64_t load_word(const void* at) {
  uint64_t v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}
__device__ __forceinline__ uint4 load_four_words(const void* at) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ ulonglong2 load_two_words(const void* at) {
  ulonglong2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(at) : "memory");
  return v;
}
__device__ __forceinline__ void load_16(const void* at, uint64_t& low, uint64_t& high) {
  asm volatile("{ .reg .b128 word; ld.relaxed.gpu.global.b128 word, [%2]; mov.b128 {%0, %1}, word; }"
               : "=l"(low), "=l"(high)
               : "l"(at)
               : "memory");
}

// --- keys and values -------------------------------------------------------------------------------------------------
// Past L1: layers that share a cache read what another SM wrote.
__device__ __forceinline__ uint4 load_cache_16(const __half* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ uint2 load_cache_8(const __half* p) {
  uint2 v;
  asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
__device__ __forceinline__ uint32_t load_cache_4(const __half* p) {
  uint32_t v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

// --- copies to shared memory -----------------------------------------------------------------------------------------
// Weights are read once per token: they must not push the small vectors that every token reads out of the L2 cache.
__device__ __forceinline__ uint64_t read_once_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// Announced at the barrier before they begin, so that it is passed when all copies have come.
__device__ __forceinline__ void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp_async_bulk(uint32_t destination, const void* from, uint32_t bytes,
                                              uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk(uint32_t destination, const void* from, uint32_t bytes, uint32_t barrier,
                                              uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(destination),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// What was written to memory, and is visible here, is so to the copies that follow.
__device__ __forceinline__ void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace carat::cuda
