#pragma once

// device/launch.h on the emulated machine: a kernel has run when its launch returns.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/launch_options.h"
#include "exec/cuda/emulated/language.h"

namespace carat::cuda {

namespace {

template <typename... Params, typename... Args>
void launch_kernel(const char*, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                   const LaunchConfig&, Args... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  emulated::launch_kernel(grid, block, shared_bytes, [&] { kernel(static_cast<Params>(args)...); });
}

template <typename... Params, typename... Args>
void launch_kernel_clusters(const char*, void (*kernel)(Params...), uint32_t cluster, dim3 grid, dim3 block,
                            size_t shared_bytes, const LaunchConfig&, Args... args) {
  emulated::launch_kernel(
      grid, block, shared_bytes, [&] { kernel(static_cast<Params>(args)...); }, cluster);
}

template <typename Kernel>
void allow_shared_memory(Kernel, size_t, const char*) {}
template <typename Kernel>
void prefer_shared_memory(Kernel, const char*) {}

#define CARAT_BLOCK_MEMORY(alignment, type, name) auto* name = reinterpret_cast<type*>(emulated::shared_memory())
#define CARAT_BLOCK_ARRAY(type, name, count) \
  auto* name = static_cast<type*>(emulated::block_array(__LINE__, sizeof(type) * (count)))

inline void wait_for_predecessor() {}
inline void release_successor() {}

}  // namespace
}  // namespace carat::cuda
