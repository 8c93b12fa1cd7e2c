#pragma once

#include <vector>

namespace carat::serve_bench {

struct Statistics {
  double mean = 0.0, median = 0.0, deviation = 0.0;
  std::vector<double> percentiles;  // as asked for, in order
};

// Zeros for no values. The deviation is that of the values themselves, not an estimate of where they come from.
Statistics statistics_of(std::vector<double> values, const std::vector<double>& percentiles);
// Of sorted values: between two of them, the part of the way that the percentage says.
double percentile_of(const std::vector<double>& sorted, double percent);

}  // namespace carat::serve_bench
