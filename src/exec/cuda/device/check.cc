#include "exec/cuda/device/check.h"

#include "base/error.h"

namespace carat::cuda {

namespace {

// An error that a kernel made stays: every later call returns it too. One of a call's arguments is gone after it was
// asked for.
bool is_sticky(cudaError_t status) {
  cudaGetLastError();
  size_t free_bytes = 0, total_bytes = 0;
  return cudaMemGetInfo(&free_bytes, &total_bytes) == status;
}

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the device stays usable
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    fail(ErrorCode::kOutOfMemory, "out of GPU memory in {}: {} of {} bytes are free", what, free_bytes, total_bytes);
  }
  fail(ErrorCode::kDevice, "CUDA error in {}: {} ({}){}", what, cudaGetErrorString(status), cudaGetErrorName(status),
       is_sticky(status) ? "; this process can no longer use the GPU" : "");
}

void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace carat::cuda
