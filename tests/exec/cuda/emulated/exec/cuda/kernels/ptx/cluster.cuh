#pragma once

// ptx/cluster.cuh on the emulated machine.
#include "exec/cuda/emulated/language.h"
#include "exec/cuda/kernels/ptx/architecture.cuh"

namespace carat::cuda {

inline uint32_t mapa(uint32_t address, uint32_t rank) { return emulated::address_in_block(address, rank); }
inline void st_cluster(uint32_t remote, float value) { emulated::store_in_block(remote, &value, sizeof value); }
inline void st_cluster(uint32_t remote, const uint4& v) { emulated::store_in_block(remote, &v, sizeof v); }
inline void st_async(uint32_t remote, uint32_t remote_barrier, uint32_t value) {
  emulated::start_send(remote, remote_barrier, &value, sizeof value);
}
inline void st_async(uint32_t remote, uint32_t remote_barrier, const uint32_t (&words)[4]) {
  emulated::start_send(remote, remote_barrier, words, sizeof words);
}
inline void cluster_arrive() { emulated::cluster_barrier_arrive(); }
inline void cluster_wait() { emulated::cluster_barrier_wait(); }

}  // namespace carat::cuda
