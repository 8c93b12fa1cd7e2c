#include "server/metrics/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

namespace carat::server {
namespace {

constexpr std::array kBounds = {.001, .01, .1, 1.};
using testing::ElementsAre;

TEST(Histogram, ABoundBelongsToTheClassBelowIt) {
  Histogram histogram(kBounds, 1e-9);
  for (const double value : {.0005, .001, .0010001, .1, 1., 1.1, 1e6}) histogram.observe(value);
  const HistogramCounts counts = histogram.counts();
  EXPECT_THAT(counts.counts, ElementsAre(2, 1, 1, 1, 2));
  EXPECT_EQ(counts.total(), 7u);
  EXPECT_NEAR(counts.sum, 1000002.2025001, 1e-6);
}

TEST(Histogram, WhatIsNoDurationCountsAsNone) {
  Histogram histogram(kBounds, 1e-9);
  histogram.observe(-1.0);
  histogram.observe(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(histogram.counts().counts, ElementsAre(2, 0, 0, 0, 0));
  EXPECT_EQ(histogram.counts().sum, 0.0);
}

TEST(Histogram, CountsFromManyThreadsAreAllThere) {
  constexpr int kThreads = 4, kEach = 20000;
  Histogram histogram(kBounds, 1e-9);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&histogram, t] {
      for (int i = 0; i < kEach; ++i) histogram.observe(t % 2 == 0 ? .0005 : .05);
    });
  }
  uint64_t seen = 0;
  while (seen < kThreads * kEach) {
    const uint64_t now = histogram.counts().total();
    ASSERT_GE(now, seen) << "a counter never goes back";
    seen = now;
    if (seen < kThreads * kEach) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(histogram.counts().counts, ElementsAre(2 * kEach, 0, 2 * kEach, 0, 0));
  EXPECT_NEAR(histogram.counts().sum, 2 * kEach * .0505, 1e-6);
}

TEST(HistogramCounts, RegroupedKeepsEveryObservation) {
  constexpr std::array kCoarser = {.01, 1.};
  const HistogramCounts counts{kBounds, {1, 2, 3, 4, 5}, 7.5};
  const HistogramCounts coarser = counts.regrouped(kCoarser);
  EXPECT_THAT(coarser.counts, ElementsAre(3, 7, 5));
  EXPECT_EQ(coarser.sum, 7.5);
  constexpr std::array kOther = {.02};
  EXPECT_THROW(counts.regrouped(kOther), std::logic_error) << "what lies between two bounds is not known";
}

}  // namespace
}  // namespace carat::server
