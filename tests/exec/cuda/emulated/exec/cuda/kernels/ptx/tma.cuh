#pragma once

// ptx/tma.cuh on the emulated machine.
#include "exec/cuda/emulated/machine.h"

namespace carat::cuda {

inline void tma_load(uint32_t destination, const CUtensorMap* map, uint32_t barrier, uint32_t x, uint32_t y) {
  emulated::start_copy(destination, map, barrier, x, y);
}

}  // namespace carat::cuda
