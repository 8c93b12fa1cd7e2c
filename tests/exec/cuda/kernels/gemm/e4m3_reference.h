#pragma once

// e4m3 as its definition has it: sign, 4 bits of exponent with a bias of 7, 3 of mantissa; 0x7f is NaN, no infinity.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace carat::cuda {

inline float e4m3_value(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if ((byte & 0x7f) == 0x7f) return NAN;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (byte & 0x80) != 0 ? -size : size;
}

// The nearest, ties to the even mantissa, saturated at 448.
inline uint8_t e4m3_of(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7f | sign;
  static const auto sizes = [] {
    std::array<double, 0x7f> all{};
    for (size_t byte = 0; byte < all.size(); ++byte) all[byte] = e4m3_value(static_cast<uint8_t>(byte));
    return all;
  }();
  const double size = std::fabs(double{value});
  const auto above = static_cast<size_t>(std::lower_bound(sizes.begin(), sizes.end(), size) - sizes.begin());
  if (above == sizes.size()) return 0x7e | sign;
  if (above == 0) return sign;
  const double up = sizes[above] - size, down = size - sizes[above - 1];
  const size_t nearest = up < down || (up == down && above % 2 == 0) ? above : above - 1;
  return static_cast<uint8_t>(nearest | sign);
}

// Rows as the kernels round them.
struct E4M3Rows {
  std::vector<uint8_t> values;
  std::vector<float> scales;
  std::vector<double> exact;  // what they stand for

  E4M3Rows(const std::vector<float>& rows, size_t count, size_t cols) : values(rows.size()), exact(rows.size()) {
    for (size_t r = 0; r < count; ++r) {
      float largest = 0.0f;
      for (size_t c = 0; c < cols; ++c) largest = std::fmax(largest, std::fabs(rows[r * cols + c]));
      const float scale = largest < 1e-30f ? 0.0f : largest * (1.0f / 448.0f);
      const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
      scales.push_back(scale);
      for (size_t i = r * cols; i < (r + 1) * cols; ++i) {
        values[i] = e4m3_of(rows[i] * inverse);
        exact[i] = double{e4m3_value(values[i])} * scale;
      }
    }
  }
};

}  // namespace carat::cuda
