#include "exec/cuda/device/check.h"

#include "base/error.h"

namespace carat::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the device stays usable
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    fail(ErrorCode::kOutOfMemory, "out of GPU memory in {}: {} of {} bytes are free", what, free_bytes, total_bytes);
  }
  fail(ErrorCode::kDevice, "CUDA error in {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace carat::cuda
