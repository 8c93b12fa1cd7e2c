#pragma once

// ptx/opaque.cuh on the emulated machine.
#include <cstdint>

namespace carat::cuda {

inline uint32_t opaque(uint32_t value) { return value; }

}  // namespace carat::cuda
