#pragma once

// ptx/load_stream.cuh on the emulated machine.
#include "exec/cuda/emulated/language.h"

namespace carat::cuda {

inline uint4 load_stream_16(const void* p) { return *static_cast<const uint4*>(p); }
inline uint2 load_stream_8(const void* p) { return *static_cast<const uint2*>(p); }

}  // namespace carat::cuda
