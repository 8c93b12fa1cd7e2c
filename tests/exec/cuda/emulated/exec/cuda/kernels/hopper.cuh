#pragma once

// hopper.cuh on the emulated machine: what the kernels that run there use of it.
#include <cuda_runtime_api.h>

#include "exec/cuda/emulated/machine.h"
#include "exec/cuda/kernels/wgmma_operand.cuh"

namespace carat::cuda {

inline void barrier_init(uint32_t barrier, uint32_t arrivals) { emulated::barrier_initialise(barrier, arrivals); }
inline void barrier_init_fence() {}
inline void barrier_arrive(uint32_t barrier) { emulated::barrier_count_arrival(barrier, 0); }
inline void barrier_arrive(uint32_t barrier, uint32_t count) { emulated::barrier_count_arrival(barrier, 0, count); }
inline void barrier_expect(uint32_t barrier, uint32_t bytes) { emulated::barrier_count_arrival(barrier, bytes); }
inline void barrier_wait(uint32_t barrier, uint32_t parity) { emulated::barrier_wait_for_phase(barrier, parity); }

inline bool barrier_passed(uint32_t barrier, uint32_t parity) { return emulated::barrier_phase_over(barrier, parity); }
inline void prefetch_bulk(const void*, uint32_t) {}

inline void barrier_wait_for_blocks(uint32_t barrier, uint32_t parity) { barrier_wait(barrier, parity); }

inline void copy_box(uint32_t destination, const CUtensorMap* map, uint32_t barrier, uint32_t x, uint32_t y) {
  emulated::start_copy(destination, map, barrier, x, y);
}
inline void send_to_block(uint32_t there, uint32_t barrier, uint32_t value) {
  emulated::start_send(there, barrier, &value, sizeof value);
}
inline void send_to_block(uint32_t there, uint32_t barrier, const uint32_t (&piece)[4]) {
  emulated::start_send(there, barrier, piece, sizeof piece);
}
inline void async_proxy_fence() {}

template <int kCount>
void give_registers() {}
template <int kCount>
void take_registers() {}

inline void wgmma_fence() {}
inline void wgmma_commit() { emulated::commit_products(); }
template <int kPending>
void wgmma_wait() {
  emulated::wait_for_products(kPending);
}

inline uint32_t opaque(uint32_t value) { return value; }

template <bool kAdd>
void wgmma_64_halves(float (&d)[32], uint64_t a, uint64_t b) {
  emulated::start_product({64, a, b, kAdd, false}, d);
}
inline void wgmma_256_halves_by_rows(float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
  emulated::start_product({256, 0, b, true, true}, d, a);
}

}  // namespace carat::cuda
