#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace carat::cuda {

// What a plan needs to know about a GPU. A plain description: tests make up their own.
struct GpuFacts {
  std::string name;
  uint32_t capability = 0;  // 80, 86, 89, 90, 120
  uint32_t sm_count = 0;
  uint32_t shared_memory = 0;       // most bytes a block may have
  bool warpgroup_products = false;  // the card has wgmma, and this build kernels that use it
  bool row_scaled_fp8 = false;      // its library multiplies e4m3 matrices with a scale for each row
  uint64_t l2_bytes = 0;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

// The first GPU this process may use; nullopt when there is none or no driver, with the reason in `why`.
std::optional<GpuFacts> query_gpu(std::string* why = nullptr);

}  // namespace carat::cuda
