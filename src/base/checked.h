#pragma once

#include <concepts>
#include <limits>
#include <optional>

namespace carat {

// Arithmetic on sizes that come from files: nullopt instead of wrapping around.
template <std::unsigned_integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  if (a > std::numeric_limits<T>::max() - b) return std::nullopt;
  return static_cast<T>(a + b);
}

template <std::unsigned_integral T>
constexpr std::optional<T> checked_mul(T a, T b) {
  if (b != 0 && a > std::numeric_limits<T>::max() / b) return std::nullopt;
  return static_cast<T>(a * b);
}

template <std::unsigned_integral T>
constexpr T ceil_div(T a, T b) {
  return a / b + (a % b != 0);
}

// The least multiple of `unit` that is no less than `a`; nullopt when it does not fit.
template <std::unsigned_integral T>
constexpr std::optional<T> checked_round_up(T a, T unit) {
  return checked_mul(ceil_div(a, unit), unit);
}

}  // namespace carat
