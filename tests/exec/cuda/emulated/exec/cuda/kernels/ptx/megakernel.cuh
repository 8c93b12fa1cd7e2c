#pragma once

// token_instructions.cuh on the emulated machine.
#include "exec/cuda/kernels/megakernel/megakernel_shape.h"
#include "exec/cuda/kernels/ptx/cp_async_bulk.cuh"
#include "exec/cuda/kernels/ptx/mbarrier.cuh"
#include "exec/cuda/kernels/ptx/mma.cuh"
#include "exec/cuda/kernels/ptx/setmaxnreg.cuh"

#define CARAT_MEGAKERNEL_INSTRUCTIONS 1
#define carat_megakernel_shared (::carat::cuda::emulated::shared_memory())

namespace carat::cuda {

// Addresses of shared memory as pointers.
inline void* __cvta_shared_to_generic(uint32_t address) { return emulated::shared_at(address, 4); }
#define __isShared(pointer) true
#define __builtin_assume(condition)

inline void find_again(uint32_t& thread, uint32_t& shared) {
  thread = threadIdx.x;
  shared = emulated::kFirstShared;
}
template <typename T>
void pin(T&) {}

inline void compute_barrier() { emulated::block_barrier(1, kMegakernelThreads); }
inline void named_barrier_arrive(int barrier) {
  emulated::block_barrier_arrive(static_cast<uint32_t>(barrier), kMegakernelThreads);
}

inline uint32_t read_shared(uint32_t address) {
  emulated::pause("what other warps write");
  return load_shared<uint32_t>(address);
}
inline void write_shared(uint32_t address, uint32_t v) {
  store_shared(address, v);
  emulated::note_progress();
}
inline uint32_t read_again(const volatile uint32_t* word) {
  emulated::pause("what other warps write");
  return *word;
}
inline void write_for_warp(volatile uint32_t& word, uint32_t v) {
  if (threadIdx.x % 32 == 0) word = v;
  emulated::meet({});  // lanes that are together stay so
}
inline uint32_t count_up(uint32_t& made) { return made++; }

template <typename Word>
void store_word(void* at, Word word) {
  emulated::store_global(at, &word, sizeof word);
}
// Words on their own arrive on their own.
inline void store_words(void* at, const uint4& v) {
  auto* words = static_cast<uint32_t*>(at);
  store_word(words, v.x), store_word(words + 1, v.y), store_word(words + 2, v.z), store_word(words + 3, v.w);
}
inline void store_words(void* at, const ulonglong2& v) {
  auto* words = static_cast<uint64_t*>(at);
  store_word(words, v.x), store_word(words + 1, v.y);
}
inline void store_16(void* at, uint64_t low, uint64_t high) {
  const uint64_t both[2] = {low, high};
  emulated::store_global(at, both, sizeof both);
}

template <typename Words>
Words load_words(const void* at) {
  emulated::pause("what other blocks write");
  Words v;
  emulated::load_global(at, &v, sizeof v, false);
  return v;
}
inline uint32_t load_word_4(const void* at) { return load_words<uint32_t>(at); }
inline uint64_t load_word(const void* at) { return load_words<uint64_t>(at); }
inline uint4 load_four_words(const void* at) { return load_words<uint4>(at); }
inline ulonglong2 load_two_words(const void* at) { return load_words<ulonglong2>(at); }
inline void load_16(const void* at, uint64_t& low, uint64_t& high) {
  const auto v = load_words<ulonglong2>(at);
  low = v.x, high = v.y;
}

template <typename Words>
Words load_cache(const __half* p) {
  Words v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline uint4 load_cache_16(const __half* p) { return load_cache<uint4>(p); }
inline uint2 load_cache_8(const __half* p) { return load_cache<uint2>(p); }
inline uint32_t load_cache_4(const __half* p) { return load_cache<uint32_t>(p); }

inline uint64_t read_once_policy() { return 0; }
inline void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) { emulated::barrier_announce_bytes(barrier, bytes); }
inline void cp_async_bulk(uint32_t destination, const void* from, uint32_t bytes, uint32_t barrier, uint64_t = 0) {
  emulated::start_bulk_copy(destination, from, bytes, barrier);
}
inline void fence_proxy_async_global() {}

}  // namespace carat::cuda
