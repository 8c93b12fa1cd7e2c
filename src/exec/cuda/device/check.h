#pragma once

#include <cuda_runtime_api.h>

namespace carat::cuda {

// Throws carat::Error (kDevice; kOutOfMemory for allocations) naming the call. Kept out of line so that device code
// needs no formatting headers.
void check(cudaError_t status, const char* what);
// Throws when a kernel launch just before this call failed.
void check_launch(const char* kernel);

}  // namespace carat::cuda
