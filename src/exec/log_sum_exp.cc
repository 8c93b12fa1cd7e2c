#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/executor.h"

namespace carat::exec {

double log_sum_exp(std::span<const float> logits) {
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  if (logits.empty()) return kMinusInfinity;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) {
    if (logit != kMinusInfinity) sum += std::exp(logit - largest);
  }
  return sum == 0.0 ? kMinusInfinity : largest + std::log(sum);
}

}  // namespace carat::exec
