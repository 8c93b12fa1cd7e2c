#include "server/metrics/histogram.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace carat::server {

namespace {
size_t class_of(std::span<const double> bounds, double value) {
  return static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}
}  // namespace

uint64_t HistogramCounts::total() const { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

HistogramCounts HistogramCounts::regrouped(std::span<const double> coarser) const {
  HistogramCounts result{coarser, std::vector<uint64_t>(coarser.size() + 1), sum};
  for (const double bound : coarser) CARAT_CHECK(std::binary_search(bounds.begin(), bounds.end(), bound));
  for (size_t i = 0; i < counts.size(); ++i) {
    result.counts[i < bounds.size() ? class_of(coarser, bounds[i]) : coarser.size()] += counts[i];
  }
  return result;
}

Histogram::Histogram(std::span<const double> bounds, double unit)
    : bounds_(bounds), unit_(unit), counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds.size() + 1)) {
  CARAT_CHECK(std::is_sorted(bounds.begin(), bounds.end()));
}

void Histogram::observe(double value) {
  if (!(value > 0.0)) value = 0.0;
  counts_[class_of(bounds_, value)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(static_cast<uint64_t>(std::llround(value / unit_)), std::memory_order_relaxed);
}

HistogramCounts Histogram::counts() const {
  HistogramCounts result{bounds_, std::vector<uint64_t>(bounds_.size() + 1), 0.0};
  for (size_t i = 0; i <= bounds_.size(); ++i) result.counts[i] = counts_[i].load(std::memory_order_relaxed);
  result.sum = static_cast<double>(sum_.load(std::memory_order_relaxed)) * unit_;
  return result;
}

}  // namespace carat::server
