#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace carat::server {

// Observations by class. There is one class for each upper bound and one for all that is beyond the last.
struct HistogramCounts {
  std::span<const double> bounds;
  std::vector<uint64_t> counts;  // [bounds + 1], not cumulative
  double sum = 0.0;

  uint64_t total() const;
  // The same observations by fewer classes. Every bound of `coarser` must be one of ours.
  HistogramCounts regrouped(std::span<const double> coarser) const;
};

// Counts observations from any thread, without locks: two additions for each. Reading while others observe gives counts
// of which each is right, but of slightly different moments.
class Histogram {
 public:
  // `bounds` ascend and outlive the histogram. The sum is kept in whole multiples of `unit`, which makes adding to it
  // one instruction: 1e-9 for seconds, 1 for tokens.
  Histogram(std::span<const double> bounds, double unit);

  void observe(double value);  // what is negative or not a number counts as 0
  HistogramCounts counts() const;

 private:
  std::span<const double> bounds_;
  double unit_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;  // [bounds + 1]
  std::atomic<uint64_t> sum_{0};
};

// The bounds of carat's histograms. Each set holds vLLM's for the same quantity, so that both can be shown, and goes on
// below them: vLLM's first bound of a gap between tokens is longer than most of carat's gaps.
namespace bounds {
inline constexpr std::array kFirstToken = {.0005, .001, .002, .003, .005, .0075, .01, .02, .04, .06, .08,  .1,   .25,
                                           .5,    .75,  1.,   2.5,  5.,   7.5,   10., 20., 40., 80., 160., 640., 2560.};
inline constexpr std::array kGap = {.0005, .001, .002, .003, .005, .0075, .01, .015, .02, .025, .05, .075, .1, .15,
                                    .2,    .3,   .4,   .5,   .75,  1.,    2.5, 5.,   7.5, 10.,  20., 40.,  80.};
inline constexpr std::array kDuration = {.0005, .001, .002, .003, .005, .0075, .01,  .025, .05,   .1,   .2,
                                         .3,    .5,   .8,   1.,   1.5,  2.,    2.5,  5.,   10.,   15.,  20.,
                                         30.,   40.,  50.,  60.,  120., 240.,  480., 960., 1920., 7680.};
inline constexpr std::array kTokens = {1.,    2.,    5.,     10.,    20.,    50.,     100.,    200.,    500.,    1000.,
                                       2000., 5000., 10000., 20000., 50000., 100000., 200000., 500000., 1000000.};
inline constexpr std::array kChoices = {1., 2., 5., 10., 20.};
}  // namespace bounds

}  // namespace carat::server
