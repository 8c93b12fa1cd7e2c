#pragma once

// Device code only (included from .cu files).
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/launch_options.h"

namespace carat::cuda {

template <typename... Params, typename... Args>
void launch_kernel(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                   const LaunchConfig& launch, Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = launch.stream;
  cudaLaunchAttribute attributes[3]{};
  config.attrs = attributes;
  if (launch.overlap) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (launch.shared_percent > 0) {
    cudaLaunchAttribute& carveout = attributes[config.numAttrs++];
    carveout.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    carveout.val.sharedMemCarveout = launch.shared_percent;
  }
  if (launch.cooperative) {
    cudaLaunchAttribute& cooperative = attributes[config.numAttrs++];
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
  }
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...), name);
}

// A kernel whose __cluster_dims__ are `cluster`: the card knows them from it.
template <typename... Params, typename... Args>
void launch_kernel_clusters(const char* name, void (*kernel)(Params...), [[maybe_unused]] uint32_t cluster, dim3 grid,
                            dim3 block, size_t shared_bytes, const LaunchConfig& launch, Args&&... args) {
  launch_kernel(name, kernel, grid, block, shared_bytes, launch, std::forward<Args>(args)...);
}

// Raises the dynamic shared memory limit of a kernel once per process and device; call it before launch().
template <typename Kernel>
void allow_shared_memory(Kernel kernel, size_t bytes, const char* name) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), name);
}

// Without this the driver may leave an SM only as much shared memory as one block needs.
template <typename Kernel>
void prefer_shared_memory(Kernel kernel, const char* name) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        name);
}

// A block's dynamic shared memory as an array. The machine that tests emulate has it elsewhere.
#define CARAT_BLOCK_MEMORY(alignment, type, name) \
  extern __shared__ __align__(alignment)          \
  type name[]
// An array beside it, in kernels whose blocks wait for one another.
#define CARAT_BLOCK_ARRAY(type, name, count) __shared__ type name[count]

#if defined(__CUDACC__)
// Blocks until the kernel before this one on the stream has finished and its writes are visible.
__device__ __forceinline__ void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel start its prologue; it still waits for this one to finish before it reads results.
__device__ __forceinline__ void release_successor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif

}  // namespace carat::cuda
