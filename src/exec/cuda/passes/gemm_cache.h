#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "exec/cuda/kernels/gemm/gemm_shape.h"

namespace carat::cuda {

// An algorithm as cuBLASLt describes it: opaque words, good for the same library on the same GPU.
using GemmAlgorithm = std::array<uint64_t, 8>;
using GemmAlgorithms = std::map<GemmProduct, GemmAlgorithm>;

// What an algorithm was found for; where any of it differs, it may be invalid or slow.
struct GemmMachine {
  std::string gpu;
  uint64_t driver = 0, library = 0;  // versions
  uint64_t workspace_bytes = 0;
  bool operator==(const GemmMachine&) const = default;
};

// The file of a machine in a folder: machines that share a home do not overwrite each other's.
std::filesystem::path gemm_cache_path(const std::filesystem::path& folder, const GemmMachine& machine);

struct GemmCacheContent {
  GemmAlgorithms algorithms;
  std::string problem;  // why a file that is there was ignored; empty: it was read, or there is none
};

// Never throws: a cache is a convenience, and whatever is wrong with it means searching again.
GemmCacheContent read_gemm_cache(const std::filesystem::path& file, const GemmMachine& machine);

// Writes beside the file and renames, making its folder where needed: readers see the old content or the new. Returns
// why that was not possible; empty: it was. Never throws.
std::string write_gemm_cache(const std::filesystem::path& file, const GemmMachine& machine,
                             const GemmAlgorithms& algorithms);

}  // namespace carat::cuda
