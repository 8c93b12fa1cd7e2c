#include "engine/drafts/ngram_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "support/random.h"

namespace carat::engine {
namespace {

using testing::ElementsAre;
using text::TokenId;
using Tokens = std::vector<TokenId>;

std::optional<NgramIndex::Match> match_of(const Tokens& text, uint32_t shortest = 2, uint32_t longest = 4) {
  NgramIndex index(shortest, longest);
  index.extend(text);
  return index.match();
}

Tokens draft_of(const Tokens& text, uint32_t count) {
  Tokens draft;
  if (const auto match = match_of(text)) draft_from(text, *match, count, draft);
  return draft;
}

// The definition, by looking at every place.
std::optional<NgramIndex::Match> searched(const Tokens& text, uint32_t shortest, uint32_t longest) {
  for (uint32_t n = longest; n >= shortest; --n) {
    if (text.size() < n) continue;
    for (size_t end = text.size(); end-- > n;) {
      if (std::equal(text.end() - n, text.end(), text.begin() + static_cast<ptrdiff_t>(end - n))) {
        return NgramIndex::Match{n, static_cast<uint32_t>(end)};
      }
    }
  }
  return std::nullopt;
}

TEST(NgramIndex, FindsNothingInANewText) {
  EXPECT_FALSE(match_of({}));
  EXPECT_FALSE(match_of({7}));
  EXPECT_FALSE(match_of({7, 8, 9, 10}));
  EXPECT_FALSE(match_of({7, 8, 9, 8})) << "a single token is no match";
}

TEST(NgramIndex, PrefersTheLongestMatchAndThenTheMostRecentOne) {
  // 2 3 occurs at the end of 1 2 3 (long ago) and alone (later): the longer match wins.
  EXPECT_THAT(draft_of({1, 2, 3, 40, 41, 9, 2, 3, 50, 51, 8, 1, 2, 3}, 2), ElementsAre(40, 41));
  EXPECT_THAT(draft_of({1, 2, 3, 40, 41, 1, 2, 3, 50, 51, 8, 1, 2, 3}, 2), ElementsAre(50, 51));
  EXPECT_THAT(draft_of({9, 2, 3, 40, 8, 2, 3, 50, 51, 7, 2, 3}, 3), ElementsAre(50, 51, 7));
}

TEST(NgramIndex, ADraftGoesOnWhereTheTextRepeatsItself) {
  EXPECT_THAT(draft_of({5, 6, 5, 6}, 5), ElementsAre(5, 6, 5, 6, 5));
  EXPECT_THAT(draft_of({4, 4, 4}, 4), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(draft_of({1, 2, 3, 1, 2}, 7), ElementsAre(3, 1, 2, 3, 1, 2, 3));
}

TEST(NgramIndex, AgreesWithASearch) {
  for (const uint32_t alphabet : {2u, 5u, 40u}) {
    test::Random random(alphabet);
    Tokens text;
    NgramIndex index(2, 5);
    for (int i = 0; i < 600; ++i) {
      text.push_back(static_cast<TokenId>(random.below(alphabet)));
      if (i % 7 == 3) continue;  // takes in two at once the next time
      index.extend(text);
      const auto expected = searched(text, 2, 5);
      ASSERT_EQ(index.match().has_value(), expected.has_value()) << "alphabet " << alphabet << ", length " << i;
      if (!expected) continue;
      ASSERT_EQ(index.match()->length, expected->length) << "alphabet " << alphabet << ", length " << i;
      ASSERT_EQ(index.match()->end, expected->end) << "alphabet " << alphabet << ", length " << i;
    }
  }
}

TEST(NgramIndex, ALongTextIsRemembered) {
  test::Random random(9);
  Tokens text;
  for (int i = 0; i < 100000; ++i) text.push_back(static_cast<TokenId>(random.below(262144)));
  NgramIndex index(2, 5);
  index.extend(text);
  size_t found = 0;
  constexpr size_t kAsked = 1000;
  for (size_t i = 0; i < kAsked; ++i) {
    const size_t place = random.below(99000);
    for (size_t j = 0; j < 5; ++j) text.push_back(text[place + j]);
    index.extend(text);
    found += index.match() && index.match()->length == 5 && index.match()->end == place + 5 ? 1 : 0;
  }
  // A place may be lost to another n-gram, or the same tokens be asked for twice; neither often.
  EXPECT_GE(found, kAsked * 95 / 100);
}

TEST(NgramIndex, ATokenCostsTheSameHoweverLongTheTextIs) {
  // One pair of tokens again and again: what a search through all occurrences would choke on.
  Tokens text(400000, 3);
  NgramIndex index(2, 5);
  const auto start = std::chrono::steady_clock::now();
  index.extend(text);
  for (int i = 0; i < 20000; ++i) {
    text.push_back(3);
    index.extend(text);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 5.0) << "a search would take minutes";
}

}  // namespace
}  // namespace carat::engine
