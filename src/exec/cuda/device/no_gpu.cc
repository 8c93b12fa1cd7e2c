// What a build without CUDA says about GPUs.
#include "exec/cuda/device/facts.h"

namespace carat::cuda {

std::optional<GpuFacts> query_gpu(std::string* why) {
  if (why != nullptr) {
    *why = "this build of carat has no GPU support (configure with CARAT_CUDA=ON where nvcc is installed)";
  }
  return std::nullopt;
}

}  // namespace carat::cuda
