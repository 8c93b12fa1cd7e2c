#pragma once

// ptx/mbarrier.cuh on the emulated machine.
#include "exec/cuda/emulated/machine.h"

namespace carat::cuda {

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) { emulated::barrier_initialise(barrier, arrivals); }
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(uint32_t barrier) { emulated::barrier_count_arrival(barrier, 0); }
inline void mbarrier_arrive(uint32_t barrier, uint32_t count) { emulated::barrier_count_arrival(barrier, 0, count); }
inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  emulated::barrier_count_arrival(barrier, bytes);
}
inline void mbarrier_wait(uint32_t barrier, uint32_t parity) { emulated::barrier_wait_for_phase(barrier, parity); }
inline void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) { mbarrier_wait(barrier, parity); }
inline bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  return emulated::barrier_phase_over(barrier, parity);
}

}  // namespace carat::cuda
