#pragma once

// cluster.cuh on the emulated machine.
#include "exec/cuda/emulated/machine.h"

namespace carat::cuda {

inline uint32_t in_block(uint32_t address, uint32_t rank) { return emulated::address_in_block(address, rank); }
inline void cluster_arrive() { emulated::cluster_barrier_arrive(); }
inline void cluster_wait() { emulated::cluster_barrier_wait(); }

}  // namespace carat::cuda
