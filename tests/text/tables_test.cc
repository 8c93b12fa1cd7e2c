#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>

#include "support/random.h"
#include "text/tokenizer/merge_table.h"
#include "text/tokenizer/symbol_table.h"
#include "text/tokenizer/token_texts.h"

namespace carat::text {
namespace {

TEST(TokenTexts, FindsTheLowestIdOfEqualTextsAndNeverTheEmptyOne) {
  TokenTexts texts;
  for (const char* text : {"a", "", "b", "a", "longer than eight bytes", ""}) texts.add(text);
  EXPECT_EQ(texts.size(), 6u);
  EXPECT_EQ(texts.find("a"), 0);
  EXPECT_EQ(texts.find("b"), 2);
  EXPECT_EQ(texts.find("longer than eight bytes"), 4);
  EXPECT_EQ(texts.find("longer than eight byteS"), std::nullopt);
  EXPECT_EQ(texts.find(""), std::nullopt);
  EXPECT_EQ(texts[3], "a");
  EXPECT_EQ(texts[5], "");
}

TEST(TokenTexts, AgreesWithAMapWithAndWithoutReserving) {
  for (const bool reserved : {false, true}) {
    carat::test::Random random(1);
    TokenTexts texts;
    if (reserved) texts.reserve(20000, 20000 * 6);
    std::map<std::string, TokenId> expected;
    for (TokenId id = 0; id < 20000; ++id) {
      std::string text;
      for (uint64_t length = random.below(20); length > 0; --length) text += static_cast<char>('a' + random.below(3));
      texts.add(text);
      if (!text.empty()) expected.emplace(text, id);
      ASSERT_EQ(texts[id], text);
    }
    for (const auto& [text, id] : expected) {
      ASSERT_EQ(texts.find(text), id);
      const std::string absent = text + "x";
      ASSERT_EQ(texts.find(absent), std::nullopt);
    }
  }
}

TEST(TokenTexts, TellsTextsApartThatDifferInZeroBytesOnly) {
  TokenTexts texts;
  for (size_t zeros = 1; zeros < 20; ++zeros) texts.add(std::string(zeros, '\0'));
  for (size_t zeros = 1; zeros < 20; ++zeros) EXPECT_EQ(texts.find(std::string(zeros, '\0')), zeros - 1);
}

TEST(MergeTable, AgreesWithAMapUpToTheLargestIds) {
  constexpr size_t kCount = 30000;
  carat::test::Random random(2);
  MergeTable table(kCount);
  std::map<std::pair<TokenId, TokenId>, uint32_t> expected;
  const auto id = [&] {
    const uint64_t limit = random.below(2) == 0 ? 100 : MergeTable::kMaxTokens;
    return static_cast<TokenId>(limit - 1 - random.below(100));
  };
  for (uint32_t rank = 0; rank < kCount; ++rank) {
    const TokenId left = id(), right = id();
    table.add(left, right, static_cast<TokenId>(rank + 7));
    expected.emplace(std::pair(left, right), rank);  // the lower rank stays
  }
  EXPECT_EQ(table.size(), kCount);
  for (const auto& [pair, rank] : expected) {
    ASSERT_EQ(table.rank(pair.first, pair.second), rank);
    ASSERT_EQ(table.result(rank), static_cast<TokenId>(rank + 7));
  }
  size_t absent = 0;
  for (int i = 0; i < 100000; ++i) {
    const TokenId left = id(), right = id();
    if (expected.contains({left, right})) continue;
    ++absent;
    ASSERT_EQ(table.rank(left, right), MergeTable::kNone);
  }
  EXPECT_GT(absent, 1000u);
}

TEST(MergeTable, AnEmptyTableHasNoMerges) {
  const MergeTable table;
  EXPECT_EQ(table.rank(0, 0), MergeTable::kNone);
  constexpr auto kLast = static_cast<TokenId>(MergeTable::kMaxTokens - 1);
  EXPECT_EQ(table.rank(kLast, kLast), MergeTable::kNone);  // the key whose bits equal the empty slot's
}

TEST(BorderFilter, NeverForgetsABorderAndRejectsMostOthers) {
  carat::test::Random random(3);
  BorderFilter filter(15000);
  std::map<std::pair<TokenId, TokenId>, bool> added;
  for (int i = 0; i < 1000; ++i) {
    const auto left = static_cast<TokenId>(random.below(200000)), right = static_cast<TokenId>(random.below(200000));
    filter.add(left, right);
    added[{left, right}] = true;
  }
  for (const auto& [pair, unused] : added) EXPECT_TRUE(filter.may_join(pair.first, pair.second));
  int claimed = 0;
  for (int i = 0; i < 10000; ++i) {
    claimed += filter.may_join(static_cast<TokenId>(random.below(200000)), static_cast<TokenId>(random.below(200000)));
  }
  EXPECT_LT(claimed, 600);  // 1000 of 32768 bits are set: about 3%
}

TEST(SymbolTable, CoversAllOfUnicode) {
  SymbolTable table;
  EXPECT_EQ(table.find(0), -1);
  EXPECT_EQ(table.find(0x10ffff), -1);
  table.add(0x10ffff, 5);
  table.add('a', 6);
  table.add('a', 7);
  EXPECT_EQ(table.find(0x10ffff), 5);
  EXPECT_EQ(table.find('a'), 6);  // the first stays
  EXPECT_EQ(table.find('b'), -1);
  EXPECT_EQ(code_point_of("a"), 0x61u);
  EXPECT_EQ(code_point_of("\u00e9"), 0xe9u);
  EXPECT_EQ(code_point_of("\u2581"), 0x2581u);
  EXPECT_EQ(code_point_of("\U0010ffff"), 0x10ffffu);
}

}  // namespace
}  // namespace carat::text
