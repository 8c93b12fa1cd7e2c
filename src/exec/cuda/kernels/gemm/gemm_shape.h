#pragma once

#include <compare>
#include <cstdint>

namespace carat::cuda {

// The element types of matrix products by the library. No CUDA headers here: what a search found is kept in a file that
// is written and tested without them.
enum class GemmElement : uint8_t { kF32, kBF16, kE4M3 };

// out[m, n] = a[m, k] w[n, k]^T
struct GemmProduct {
  uint32_t m = 0, n = 0, k = 0;
  GemmElement in = GemmElement::kBF16, out = GemmElement::kBF16;
  auto operator<=>(const GemmProduct&) const = default;
};

}  // namespace carat::cuda
