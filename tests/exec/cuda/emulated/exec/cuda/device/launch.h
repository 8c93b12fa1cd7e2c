#pragma once

// device/launch.h on the emulated machine: kernels whose threads have nothing to do with one another run at once.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "exec/cuda/device/check.h"
#include "exec/cuda/emulated/language.h"

namespace carat::cuda {

struct Launch {
  cudaStream_t stream = nullptr;
  bool overlap = false;
  uint32_t shared_percent = 0;
  bool cooperative = false;
};

namespace {

template <typename... Params, typename... Args>
void launch(const char*, void (*kernel)(Params...), dim3 grid, dim3 block, size_t, const Launch&, Args... args) {
  emulated::run_each(grid.x, block.x, [&] { kernel(static_cast<Params>(args)...); });
}

template <typename Kernel>
void allow_shared_memory(Kernel, size_t, const char*) {}

inline void wait_for_predecessor() {}
inline void release_successor() {}

}  // namespace
}  // namespace carat::cuda
