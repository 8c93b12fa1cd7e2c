#include "exec/cpu/rotary.h"

#include <algorithm>
#include <cmath>

namespace carat::exec::cpu {

RotaryAngles::RotaryAngles(uint32_t hd, double base, std::span<const float> divisors, uint32_t max_rows)
    : frequencies_(hd / 2), cosines_(size_t{max_rows} * (hd / 2)), sines_(size_t{max_rows} * (hd / 2)) {
  for (size_t j = 0; j < frequencies_.size(); ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / hd;
    frequencies_[j] = std::pow(base, exponent) / (divisors.empty() ? 1.0 : divisors[j]);
  }
}

void RotaryAngles::set_row(uint32_t row, uint32_t position) {
  float* cosine = cosines_.data() + row * half();
  float* sine = sines_.data() + row * half();
  for (size_t j = 0; j < half(); ++j) {
    // In double: at position 100,000 an fp32 angle would be off by a thousandth of a turn.
    const double angle = position * frequencies_[j];
    // Three quarters of a global head do not turn (their divisor is 1e30): no need to ask the library.
    const bool still = std::abs(angle) < 1e-12;
    cosine[j] = still ? 1.0f : static_cast<float>(std::cos(angle));
    sine[j] = still ? static_cast<float>(angle) : static_cast<float>(std::sin(angle));
  }
}

void RotaryAngles::move_row(uint32_t from, uint32_t to) {
  std::copy_n(cosines_.data() + from * half(), half(), cosines_.data() + to * half());
  std::copy_n(sines_.data() + from * half(), half(), sines_.data() + to * half());
}

}  // namespace carat::exec::cpu
