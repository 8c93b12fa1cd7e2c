#include "cli/reports/divergence.h"

#include <algorithm>
#include <cmath>

#include "exec/executor.h"

namespace carat::cli {

namespace {

// The value below which `share` of the values lie (nearest rank).
double quantile(std::vector<double>& values, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<ptrdiff_t>(std::clamp<size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
  return exec::log_sum_exp(logits) - logits[static_cast<size_t>(token)];
}

double kl_divergence(std::span<const float> base, std::span<const float> other) {
  const double base_norm = exec::log_sum_exp(base);
  const double other_norm = exec::log_sum_exp(other);
  double sum = 0.0;
  for (size_t i = 0; i < base.size(); ++i) {
    const double base_log = base[i] - base_norm;
    sum += std::exp(base_log) * (base_log - (other[i] - other_norm));
  }
  return std::max(0.0, sum);  // rounding may leave -1e-17 where the two are equal
}

int32_t best_token(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Summary summarise(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) summary.mean += value / count;
  double squares = 0.0;
  for (const double value : values) squares += (value - summary.mean) * (value - summary.mean);
  if (values.size() > 1) summary.standard_error = std::sqrt(squares / (count - 1.0) / count);
  summary.median = quantile(values, 0.5);
  summary.p99 = quantile(values, 0.99);
  summary.largest = *std::max_element(values.begin(), values.end());
  return summary;
}

}  // namespace carat::cli
