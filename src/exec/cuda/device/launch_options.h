#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace carat::cuda {

// How a kernel is put on a stream. With `overlap` the kernel may start while its predecessor is still running
// (programmatic dependent launch); it must then call wait_for_predecessor() in every thread before it touches anything
// the predecessor reads or writes.
struct LaunchConfig {
  cudaStream_t stream = nullptr;
  bool overlap = false;
  // Of an SM's L1, for shared memory; 0: the driver chooses. An SM has to be empty to be divided anew: kernels overlap
  // only where they agree.
  uint32_t shared_percent = 0;
  // Blocks wait for one another: all of them are on the chip at once, or the launch fails.
  bool cooperative = false;
};

}  // namespace carat::cuda
