#pragma once

// ptx/wgmma.cuh on the emulated machine.
#include "exec/cuda/emulated/machine.h"
#include "exec/cuda/kernels/ptx/wgmma_descriptor.cuh"

namespace carat::cuda {

inline void wgmma_fence() {}
inline void wgmma_commit_group() { emulated::commit_products(); }
template <int kPending>
void wgmma_wait_group() {
  emulated::wait_for_products(kPending);
}

template <bool kAccumulate>
void wgmma_m64n64_f16(float (&d)[32], uint64_t a, uint64_t b) {
  emulated::start_product({64, a, b, kAccumulate, false}, d);
}
inline void wgmma_m64n256_f16_b_n_major(float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
  emulated::start_product({256, 0, b, true, true}, d, a);
}

}  // namespace carat::cuda
