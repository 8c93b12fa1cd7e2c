#pragma once

#include <cstdint>

namespace carat::cuda {

// A matrix of e4m3 bytes with an fp32 scale for each row: element [r, c] is values[r * cols + c] * scales[r]. Plain
// data, in device memory.
struct Fp8Matrix {
  const uint8_t* values = nullptr;
  const float* scales = nullptr;
};

// The same where it is written.
struct Fp8Rows {
  uint8_t* values = nullptr;
  float* scales = nullptr;
  operator Fp8Matrix() const { return {values, scales}; }
};

inline constexpr float kLargestE4M3 = 448.0f;

// What the library's e4m3 products ask of a matrix's width, and what the kernels that round activations keep of a row
// in shared memory.
inline constexpr uint32_t kFp8Unit = 16;
inline constexpr uint32_t kFp8MostColumns = 24'320;  // 48 KB less what else is there
constexpr bool fp8_columns_fit(uint64_t cols) { return cols % kFp8Unit == 0 && cols > 0 && cols <= kFp8MostColumns; }

}  // namespace carat::cuda
