#pragma once

// Copies of tensor tiles by the tensor memory accelerator (TMA, sm_90).
#include <cuda.h>

#include <cstdint>

namespace carat::cuda {

// Copies the box of a tensor map whose first element is (x, y), x along the rows, to shared memory; what lies outside
// the tensor becomes zero. The bytes of the whole box count towards the barrier's phase.
__device__ __forceinline__ void tma_load(uint32_t destination, const CUtensorMap* map, uint32_t barrier, uint32_t x,
                                         uint32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

}  // namespace carat::cuda
