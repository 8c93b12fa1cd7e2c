#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "exec/executor.h"
#include "support/random.h"

namespace carat::exec {
namespace {

// The slow, obvious way.
std::vector<Candidate> sorted_best(const std::vector<float>& logits, uint32_t k) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({static_cast<int32_t>(i), logits[i]});
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  all.resize(std::min<size_t>(k, all.size()));
  return all;
}

void expect_best(const std::vector<float>& logits, uint32_t k) {
  std::vector<Candidate> best = {{99, 99.0f}};  // what was in it must go
  select_best(logits, k, best);
  const std::vector<Candidate> expected = sorted_best(logits, k);
  ASSERT_EQ(best.size(), expected.size());
  for (size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(best[i].token, expected[i].token) << "k " << k << ", place " << i;
    EXPECT_EQ(best[i].logit, expected[i].logit);
  }
}

TEST(SelectBest, AgreesWithSorting) {
  test::Random random(1);
  for (const size_t size : {1u, 2u, 7u, 100u, 5000u}) {
    const std::vector<float> logits = random.normals(size);
    for (const uint32_t k : {0u, 1u, 2u, 6u, 7u, 64u, 5000u, 0xffffffffu}) expect_best(logits, k);
  }
}

TEST(SelectBest, EqualLogitsGoByLowerToken) {
  test::Random random(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> logits(200);
    for (float& logit : logits) logit = static_cast<float>(random.below(5));
    for (const uint32_t k : {1u, 3u, 41u, 200u}) expect_best(logits, k);
  }
  expect_best({0.0f, -0.0f, 0.0f}, 2);  // the two zeros are equal
}

TEST(SelectBest, SortedInputsBothWays) {
  std::vector<float> rising(1000);
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<float>(i);
  expect_best(rising, 40);
  std::reverse(rising.begin(), rising.end());
  expect_best(rising, 40);
}

}  // namespace
}  // namespace carat::exec
