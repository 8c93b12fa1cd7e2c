#include "serve/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace carat::serve_bench {

double percentile_of(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0.0;
  const double place = percent / 100.0 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

Statistics statistics_of(std::vector<double> values, const std::vector<double>& percentiles) {
  Statistics result;
  std::sort(values.begin(), values.end());
  for (const double percent : percentiles) result.percentiles.push_back(percentile_of(values, percent));
  if (values.empty()) return result;
  const auto count = static_cast<double>(values.size());
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  result.median = percentile_of(values, 50.0);
  double squares = 0.0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / count);
  return result;
}

}  // namespace carat::serve_bench
