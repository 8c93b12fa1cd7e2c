#include "serve/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carat::serve_bench {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

RequestResult request(double start, double first, std::vector<double> gaps, uint32_t tokens) {
  RequestResult result{
      .is_complete = true, .start = start, .first_token = first, .latency = first, .gaps = std::move(gaps)};
  for (const double gap : result.gaps) result.latency += gap;
  result.output_tokens = tokens;
  result.prompt_tokens = 10;
  result.has_usage = true;
  return result;
}

// The expected values are numpy's: mean, median, std and percentile with its defaults.
TEST(Statistics, AreThoseOfNumpy) {
  const Statistics statistics = statistics_of({3, 1, 4, 1, 5, 9, 2, 6}, {0, 25, 90, 99, 100});
  EXPECT_DOUBLE_EQ(statistics.mean, 3.875);
  EXPECT_DOUBLE_EQ(statistics.median, 3.5);
  EXPECT_NEAR(statistics.deviation, 2.5708704751503917, 1e-12);
  EXPECT_THAT(statistics.percentiles, ElementsAre(1.0, 1.75, DoubleNear(6.9, 1e-12), DoubleNear(8.79, 1e-12), 9.0));
  EXPECT_EQ(statistics_of({}, {50}).percentiles[0], 0.0);
  EXPECT_EQ(statistics_of({7}, {99}).percentiles[0], 7.0);
}

TEST(Figures, AddUpRequests) {
  LoadResult load{.requests = {request(0.0, 0.1, {0.1, 0.1}, 5), request(0.0, 0.3, {}, 1)}, .seconds = 2.0};
  load.requests.push_back({.error_kind = "HTTP 500", .error = "no"});
  const Figures figures = figures_of(load, {.percentiles = {50}});
  EXPECT_EQ(figures.completed, 2u);
  EXPECT_EQ(figures.failed, 1u);
  EXPECT_EQ(figures.errors.at("HTTP 500").count, 1u);
  EXPECT_EQ(figures.errors.at("HTTP 500").example, "no");
  EXPECT_DOUBLE_EQ(figures.request_throughput, 1.0);
  EXPECT_DOUBLE_EQ(figures.output_throughput, 3.0);
  EXPECT_DOUBLE_EQ(figures.total_throughput, 13.0);
  EXPECT_DOUBLE_EQ(figures.first_token.mean, 200.0);
  EXPECT_DOUBLE_EQ(figures.per_token.mean, 50.0) << "of requests with more than one token";
  EXPECT_DOUBLE_EQ(figures.gap.mean, 100.0);
  EXPECT_DOUBLE_EQ(figures.latency.mean, 300.0);
  EXPECT_DOUBLE_EQ(figures.most_output_per_second, 6.0) << "all of it came in the first second";
  EXPECT_FALSE(figures.goodput.has_value());
  EXPECT_FALSE(figures.later_turns.has_value());
  EXPECT_FALSE(figures.intrusion.has_value());
}

TEST(Figures, GoodputNeedsEveryLimit) {
  const LoadResult load{
      .requests = {request(0, 0.1, {0.1, 0.1}, 3), request(0, 0.6, {0.1}, 2), request(0, 0.1, {0.5}, 2)},
      .seconds = 2.0};
  EXPECT_DOUBLE_EQ(*figures_of(load, {.goodput = {{"ttft", 500}}}).goodput, 1.0);
  EXPECT_DOUBLE_EQ(*figures_of(load, {.goodput = {{"ttft", 500}, {"tpot", 200}}}).goodput, 0.5);
  EXPECT_DOUBLE_EQ(*figures_of(load, {.goodput = {{"e2el", 650}}}).goodput, 1.0);
}

TEST(Figures, TurnsOfConversationsAreToldApart) {
  LoadResult load{.requests = {request(0, 0.4, {}, 1), request(1, 0.1, {}, 1)}, .seconds = 2.0};
  load.requests[1].turn = 1;
  const Figures figures = figures_of(load, {.percentiles = {50}});
  EXPECT_DOUBLE_EQ(figures.first_turn->mean, 400.0);
  EXPECT_DOUBLE_EQ(figures.later_turns->mean, 100.0);
}

TEST(Figures, AnIntruderIsSeenInTheGapsOfTheOthers) {
  LoadResult load{.requests = {request(0, 0.1, {0.1, 0.1, 0.5, 0.2, 0.1}, 6), request(0.35, 0.6, {0.1}, 2)},
                  .seconds = 2.0};
  load.requests[1].is_intruder = true;
  const auto intrusion = figures_of(load, {.percentiles = {100}}).intrusion;
  ASSERT_TRUE(intrusion.has_value());
  EXPECT_DOUBLE_EQ(intrusion->first_token, 600.0);
  EXPECT_NEAR(intrusion->gap_before.percentiles[0], 100.0, 1e-6);
  EXPECT_NEAR(intrusion->gap_during.percentiles[0], 500.0, 1e-6);
  EXPECT_NEAR(intrusion->gap_during.mean, 350.0, 1e-6) << "those of 500 and 200 ms";
}

}  // namespace
}  // namespace carat::serve_bench
