#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace carat::engine {

// e^x for x <= 0, within two units in the last place. C libraries round their exp differently, which could turn the
// same seed into another text; this one uses only operations IEEE 754 defines exactly (the build forbids contraction).
// Results below the smallest normal double are 0.
inline double portable_exp(double x) {
  if (!(x > -708.0)) return 0.0;
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 20 trailing zero bits: its product with n is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double n = std::floor(x * kLog2E + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  // Taylor series: the first omitted term, r^14 / 14!, is below 5e-18.
  double sum = 1.0;
  for (int i = 13; i >= 1; --i) sum = 1.0 + r / i * sum;
  const auto exponent = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023);
  return sum * std::bit_cast<double>(exponent << 52);
}

}  // namespace carat::engine
