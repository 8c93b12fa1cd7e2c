#include "exec/cuda/device/facts.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/kernels/gemm/cublaslt_library.h"
#include "exec/cuda/kernels/gemm/gemm.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"

namespace carat::cuda {

namespace {

// What keeps the runtime from finding a GPU, in words that say what to do.
std::string no_gpu_reason(cudaError_t status) {
  if (status == cudaSuccess || status == cudaErrorNoDevice) return "there is none in this machine";
  if (status != cudaErrorInsufficientDriver) return cudaGetErrorString(status);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "there is no NVIDIA driver";
  return fmt::format("the NVIDIA driver is for CUDA {}.{} at most and carat was built with {}.{}; a newer driver helps",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

}  // namespace

std::optional<GpuFacts> query_gpu(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    if (why != nullptr) *why = no_gpu_reason(status);
    cudaGetLastError();
    return std::nullopt;
  }
  try {
    cublaslt();
  } catch (const Error& error) {
    if (why != nullptr) *why = error.what();
    return std::nullopt;
  }
  int device = 0;
  check(cudaGetDevice(&device), "choosing a GPU");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "reading the GPU's properties");
  GpuFacts facts;
  facts.name = properties.name;
  facts.capability = static_cast<uint32_t>(properties.major * 10 + properties.minor);
  facts.sm_count = static_cast<uint32_t>(properties.multiProcessorCount);
  facts.shared_memory = static_cast<uint32_t>(properties.sharedMemPerBlockOptin);
  facts.warpgroup_products = wgmma_available();
  // The library has these products for Hopper only (neither 8.9 before it nor 10.0 and 12.0 after).
  facts.row_scaled_fp8 = facts.capability == 90 && library_has_row_scaled_fp8();
  facts.l2_bytes = static_cast<uint64_t>(properties.l2CacheSize);
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "reading the GPU's free memory");
  facts.free_bytes = free_bytes;
  facts.total_bytes = total_bytes;
  return facts;
}

}  // namespace carat::cuda
