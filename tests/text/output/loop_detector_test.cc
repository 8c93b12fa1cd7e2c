#include "text/output/loop_detector.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/random.h"

namespace carat::text {
namespace {

// How many tokens of `tokens` it takes until a loop is reported; 0: none is.
size_t found_after(const std::vector<TokenId>& tokens, LoopDetector detector = LoopDetector()) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (detector.append(tokens[i])) return i + 1;
  }
  return 0;
}

std::vector<TokenId> copies(const std::vector<TokenId>& stretch, size_t count) {
  std::vector<TokenId> tokens;
  for (; count > 0; --count) tokens.insert(tokens.end(), stretch.begin(), stretch.end());
  return tokens;
}

TEST(LoopDetector, FindsOneTokenOverAndOver) {
  EXPECT_EQ(found_after(copies({7}, 1000)), 129u);
  EXPECT_EQ(found_after(copies({7}, 128)), 0u);
}

TEST(LoopDetector, FindsAStretchThatComesAgain) {
  std::vector<TokenId> sentence;
  for (TokenId t = 0; t < 60; ++t) sentence.push_back(t % 17);
  std::vector<TokenId> tokens = {99, 98, 97};
  const auto loop = copies(sentence, 6);
  tokens.insert(tokens.end(), loop.begin(), loop.end());
  EXPECT_EQ(found_after(tokens), 3 + 60 * 4);  // the first and three copies
  LoopDetector detector;
  std::optional<LoopDetector::Loop> last;
  for (const TokenId token : tokens) last = detector.append(token);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->period, 60u);
  EXPECT_EQ(last->copies, 6u);
}

TEST(LoopDetector, FindsTheLongestPeriodAndNoLonger) {
  const auto counting = [](TokenId length) {
    std::vector<TokenId> tokens;
    for (TokenId t = 0; t < length; ++t) tokens.push_back(t);
    return copies(tokens, 6);
  };
  EXPECT_EQ(found_after(counting(512)), 512u * 4);
  EXPECT_EQ(found_after(counting(513)), 0u);
}

TEST(LoopDetector, LeavesOrdinaryTextAlone) {
  carat::test::Random random(1);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 100'000; ++i) tokens.push_back(static_cast<TokenId>(random.below(50)));
  EXPECT_EQ(found_after(tokens), 0u);
  // A table whose rows differ in one cell.
  tokens.clear();
  for (TokenId row = 0; row < 300; ++row) {
    for (const TokenId cell : {1, 2, 3, 4}) tokens.push_back(cell);
    tokens.push_back(100 + row);
  }
  EXPECT_EQ(found_after(tokens), 0u);
}

TEST(LoopDetector, ALoopThatIsLeftIsOver) {
  LoopDetector detector;
  for (int i = 0; i < 200; ++i) detector.append(7);
  EXPECT_TRUE(detector.append(7));
  EXPECT_FALSE(detector.append(8));
  for (int i = 0; i < 128; ++i) EXPECT_FALSE(detector.append(7));
}

TEST(LoopDetector, SensitivityIsAChoice) {
  const LoopDetector::Options quick = {.longest_period = 4, .copies = 2, .tokens = 1};
  EXPECT_EQ(found_after({1, 2, 1, 2, 1, 2}, LoopDetector(quick)), 6u);
  EXPECT_THROW(LoopDetector({.longest_period = 0}), Error);
  EXPECT_THROW(LoopDetector({.copies = 0}), Error);
}

}  // namespace
}  // namespace carat::text
