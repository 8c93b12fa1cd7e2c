#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "exec/executor.h"
#include "support/random.h"

namespace carat::exec {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The definition, without a care for overflow.
double plainly(const std::vector<float>& logits) {
  long double sum = 0.0L;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  return static_cast<double>(std::log(sum));
}

TEST(LogSumExp, AgreesWithTheDefinition) {
  test::Random random(1);
  for (const size_t size : {1u, 2u, 7u, 1000u, 262144u}) {
    for (const float scale : {0.0f, 1.0f, 10.0f, 200.0f}) {
      const std::vector<float> logits = random.normals(size, scale);
      EXPECT_NEAR(log_sum_exp(logits), plainly(logits), 1e-11) << size << " logits of deviation " << scale;
    }
  }
}

TEST(LogSumExp, LargeLogitsDoNotOverflow) {
  EXPECT_NEAR(log_sum_exp(std::vector<float>{1e30f, 1e30f}), static_cast<double>(1e30f), 1e15);
  EXPECT_NEAR(log_sum_exp(std::vector<float>{-1000.0f, -1000.0f}), -1000.0 + std::log(2.0), 1e-12);
}

TEST(LogSumExp, MinusInfinityIsImpossible) {
  EXPECT_NEAR(log_sum_exp(std::vector<float>{-kInfinity, 3.0f, -kInfinity}), 3.0, 1e-12);
  EXPECT_EQ(log_sum_exp(std::vector<float>{-kInfinity, -kInfinity}), -kInfinity);
  EXPECT_EQ(log_sum_exp({}), -kInfinity);
}

TEST(LogSumExp, WhatIsNotANumberStaysVisible) {
  EXPECT_TRUE(std::isnan(log_sum_exp(std::vector<float>{1.0f, std::nanf("")})));
  EXPECT_FALSE(std::isfinite(log_sum_exp(std::vector<float>{1.0f, kInfinity})));
}

}  // namespace
}  // namespace carat::exec
