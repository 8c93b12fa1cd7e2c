#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace carat::cuda {

// A matrix of the file, as rows of equal size.
struct UploadRows {
  uint64_t rows = 0;
  uint64_t row_bytes = 0;
};

// Consecutive rows of one matrix, and where their bytes lie in the load.
struct UploadPart {
  size_t matrix = 0;
  uint64_t first_row = 0;
  uint64_t rows = 0;
  uint64_t offset = 0;
};

// What goes to the device in one copy: large matrices take several loads, small ones share one, because a copy of less
// than a few megabytes does not reach the speed of the bus.
struct UploadLoad {
  std::vector<UploadPart> parts;
  uint64_t bytes = 0;  // from the first part to the end of the last
};

// Parts begin at multiples of this, as the kernels that read them like it.
inline constexpr uint64_t kUploadAlignment = 256;

// All rows of all matrices once and in order, in loads of at most `load_bytes`; one row may be larger than that and is
// then a load of its own.
std::vector<UploadLoad> cut_uploads(std::span<const UploadRows> matrices, uint64_t load_bytes);

}  // namespace carat::cuda
