#include "text/output/stop_matcher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "base/error.h"
#include "support/random.h"

namespace carat::text {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> stop;
  bool operator==(const Outcome&) const = default;
};

Outcome matched(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) outcome.text += matcher.append(piece);
  outcome.text += matcher.flush();
  if (matcher.has_found()) outcome.stop = matcher.found();
  return outcome;
}

// By definition: the stop that ends first, and of those that end together the longest.
Outcome naively_matched(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string_view so_far = std::string_view(text).substr(0, end);
    std::optional<std::string> best;
    for (const std::string& stop : stops) {
      if (so_far.ends_with(stop) && (!best || stop.size() > best->size())) best = stop;
    }
    if (best) return {text.substr(0, end - best->size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, CutsBeforeTheStop) {
  EXPECT_EQ(matched({"\n\n"}, {"one\ntwo\n", "\nthree"}), (Outcome{"one\ntwo", "\n\n"}));
  EXPECT_EQ(matched({"END"}, {"E", "N", "EN", "D", "more"}), (Outcome{"EN", "END"}));
  EXPECT_EQ(matched({"END"}, {"E", "N"}), (Outcome{"EN", std::nullopt}));
  EXPECT_EQ(matched({"x"}, {"x"}), (Outcome{"", "x"}));
  EXPECT_EQ(matched({}, {"any", "thing"}), (Outcome{"anything", std::nullopt}));
}

TEST(StopMatcher, TheEarliestEndWinsAndThenTheLongestStop) {
  EXPECT_EQ(matched({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", "bc"}));        // nested: "bc" ends first
  EXPECT_EQ(matched({"cd", "abcd", "d"}, {"xabcd"}), (Outcome{"x", "abcd"}));  // all end together
  EXPECT_EQ(matched({"abab", "babb"}, {"ab", "abb"}), (Outcome{"", "abab"}));
  EXPECT_EQ(matched({"aab"}, {"aaaa", "ab"}), (Outcome{"aaa", "aab"}));  // overlaps itself
  EXPECT_EQ(matched({"abc", "abd"}, {"ab", "d"}), (Outcome{"", "abd"}));
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBeginAStop) {
  StopMatcher matcher({"</s>", "<|end|>"});
  EXPECT_EQ(matcher.append("a <"), "a ");
  EXPECT_EQ(matcher.append("b"), "<b");
  EXPECT_EQ(matcher.append("<|en"), "");
  EXPECT_EQ(matcher.append("<|end|"), "<|en");
  EXPECT_FALSE(matcher.has_found());
  EXPECT_EQ(matcher.append(">after"), "");
  ASSERT_TRUE(matcher.has_found());
  EXPECT_EQ(matcher.found(), "<|end|>");
  EXPECT_EQ(matcher.append("</s>"), "");
  EXPECT_EQ(matcher.flush(), "");
  EXPECT_EQ(matcher.found(), "<|end|>");
}

TEST(StopMatcher, BeginsAnewAfterAFlush) {
  StopMatcher matcher({"abc"});
  EXPECT_EQ(matcher.append("xab"), "x");
  EXPECT_EQ(matcher.flush(), "ab");
  EXPECT_EQ(matcher.append("c"), "c");
  EXPECT_FALSE(matcher.has_found());
}

TEST(StopMatcher, RefusesAnEmptyStop) { EXPECT_THROW(StopMatcher({"a", ""}), Error); }

TEST(StopMatcher, IsTheNaiveSearchWhateverThePieces) {
  carat::test::Random random(7);
  const auto word = [&](size_t longest) {
    std::string text(1 + random.below(longest), 'a');
    for (char& c : text) c = static_cast<char>('a' + random.below(3));
    return text;
  };
  size_t found = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random.below(4) + 1; i > 0; --i) stops.push_back(word(6));
    const std::string text = word(30);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size(); at += pieces.back().size()) {
      pieces.push_back(text.substr(at, 1 + random.below(5)));
    }
    const Outcome expected = naively_matched(stops, text);
    found += expected.stop ? 1 : 0;
    ASSERT_EQ(matched(stops, pieces), expected) << text;
  }
  EXPECT_GT(found, 5000u);
  EXPECT_LT(found, 19500u);
}

// A stop that is nearly found again and again, one byte at a time.
TEST(StopMatcher, TakesLinearTime) {
  const size_t length = 200'000;
  const auto seconds = [](const std::string& stop, size_t count) {
    StopMatcher matcher({stop});
    const auto start = std::chrono::steady_clock::now();
    size_t out = 0;
    for (size_t i = 0; i < count; ++i) out += matcher.append("a").size();
    out += matcher.flush().size();
    EXPECT_EQ(out, count);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // Quadratic time would be minutes.
  EXPECT_LT(seconds(std::string(length, 'a') + "b", 10 * length), 5.0);
}

}  // namespace
}  // namespace carat::text
