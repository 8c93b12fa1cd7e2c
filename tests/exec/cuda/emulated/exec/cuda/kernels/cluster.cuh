#pragma once

// cluster.cuh on the emulated machine.
#include "exec/cuda/emulated/language.h"

#define CARAT_CLUSTERS 1

namespace carat::cuda {

inline uint32_t in_block(uint32_t address, uint32_t rank) { return emulated::address_in_block(address, rank); }
inline void put_in_block(uint32_t there, float value) { emulated::store_in_block(there, &value, sizeof value); }
inline void put_in_block(uint32_t there, const uint4& v) { emulated::store_in_block(there, &v, sizeof v); }
inline void cluster_arrive() { emulated::cluster_barrier_arrive(); }
inline void cluster_wait() { emulated::cluster_barrier_wait(); }

}  // namespace carat::cuda
