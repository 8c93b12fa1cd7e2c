#include "exec/cuda/device/memory.h"

#include "base/error.h"
#include "exec/cuda/device/check.h"

namespace carat::cuda {

DeviceMemory::DeviceMemory(size_t bytes, const char* purpose) : bytes_(bytes) {
  if (bytes == 0) return;
  const cudaError_t status = cudaMalloc(&data_, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    fail(
        ErrorCode::kOutOfMemory,
        "out of GPU memory: {} needs {} bytes but only {} of {} are free; a smaller context (-c), chunk (-ub) or fewer "
        "GPU layers (-ngl) needs less",
        purpose, bytes, free_bytes, total_bytes);
  }
  check(status, purpose);
}

void DeviceMemory::release() noexcept {
  if (data_ != nullptr) cudaFree(data_);
  data_ = nullptr;
}

PinnedMemory::PinnedMemory(size_t bytes, const char* purpose) : bytes_(bytes) {
  if (bytes == 0) return;
  const cudaError_t status = cudaHostAlloc(&data_, bytes, cudaHostAllocMapped);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(ErrorCode::kOutOfMemory, "out of memory: {} needs {} bytes of page-locked host memory", purpose, bytes);
  }
  check(status, purpose);
}

void* PinnedMemory::device_data() const {
  void* pointer = nullptr;
  check(cudaHostGetDevicePointer(&pointer, data_, 0), "page-locked memory");
  return pointer;
}

void PinnedMemory::release() noexcept {
  if (data_ != nullptr) cudaFreeHost(data_);
  data_ = nullptr;
}

}  // namespace carat::cuda
