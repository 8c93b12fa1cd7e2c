#pragma once

// ptx/cp_async_bulk.cuh on the emulated machine.
#include <cstdint>

namespace carat::cuda {

inline void prefetch_l2_bulk(const void*, uint32_t) {}

}  // namespace carat::cuda
