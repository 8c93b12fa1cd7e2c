#include "engine/cache/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/random.h"

namespace carat::engine {
namespace {

using Tokens = std::vector<text::TokenId>;

const auto kAll = [](exec::PrefixId) { return true; };

TEST(PrefixTree, FindsTheLastMarkOnTheWay) {
  PrefixTree tree;
  EXPECT_TRUE(tree.add("", Tokens{1, 2, 3}, MarkKind::kTurn, 10));
  EXPECT_TRUE(tree.add("", Tokens{1, 2, 3, 4, 5}, MarkKind::kEnd, 11));
  EXPECT_TRUE(tree.add("", Tokens{1, 2, 9}, MarkKind::kEnd, 12));
  const Tokens prompt = {1, 2, 3, 4, 6};
  PrefixTree::Match match = tree.find("", prompt, 4);
  EXPECT_EQ(match.shared, 4u);
  EXPECT_EQ(match.length, 3u);
  EXPECT_EQ(match.prefix, 10u);
  EXPECT_EQ(match.loss, PrefixLoss::kWindow);
  EXPECT_EQ(tree.find("", Tokens{1, 2, 3, 4, 5, 6}, 5).prefix, 11u);
  EXPECT_EQ(tree.find("", Tokens{1, 2, 3, 4, 5}, 4).prefix, 10u) << "the last token is to be run";
  EXPECT_EQ(tree.find("", Tokens{1, 2, 9, 9}, 3).prefix, 12u);
  EXPECT_FALSE(tree.find("", Tokens{1, 2, 8}, 2).prefix);
  EXPECT_EQ(tree.find("", Tokens{1, 2, 8}, 2).shared, 2u);
  EXPECT_EQ(tree.find("other", prompt, 4).shared, 0u) << "salts share nothing";
  match = tree.find("", Tokens{1, 2, 3, 4, 5}, 5);
  EXPECT_EQ(match.length, 5u);
  EXPECT_EQ(match.loss, PrefixLoss::kNone);
}

TEST(PrefixTree, AMarkBehindThePlaceIsCutWhereItCanBe) {
  PrefixTree tree;
  tree.add("", Tokens{1, 2, 3, 4, 5, 6}, MarkKind::kEnd, 10);
  tree.add("", Tokens{1, 2, 7, 8}, MarkKind::kEnd, 11);
  std::set<exec::PrefixId> asked;
  const auto can_cut = [&](exec::PrefixId id, uint32_t n) { return asked.insert(id), id == 10 && n >= 3; };
  PrefixTree::Match match = tree.find("", Tokens{1, 2, 3, 9}, 3, can_cut);
  EXPECT_EQ(match.prefix, 10u);
  EXPECT_EQ(match.length, 3u);
  EXPECT_EQ(match.loss, PrefixLoss::kNone);
  EXPECT_EQ(asked.count(11), 0u) << "that is another text";
  EXPECT_EQ(tree.find("", Tokens{1, 2, 3, 4, 5, 6}, 5, can_cut).length, 5u);
  match = tree.find("", Tokens{1, 2, 9}, 2, can_cut);
  EXPECT_FALSE(match.prefix);
  EXPECT_EQ(match.loss, PrefixLoss::kWindow);
}

TEST(PrefixTree, APlaceIsMarkedOnceAndKeepsTheBetterKind) {
  PrefixTree tree;
  EXPECT_TRUE(tree.add("", Tokens{1, 2}, MarkKind::kInterval, 10));
  EXPECT_FALSE(tree.add("", Tokens{1, 2}, MarkKind::kSystem, 11));
  EXPECT_TRUE(tree.add("", Tokens{3}, MarkKind::kInterval, 12));
  EXPECT_EQ(tree.evict(kAll), 12u) << "the newer one, because the other counts as used later";
  EXPECT_EQ(tree.marks(), 1u);
}

TEST(PrefixTree, WhatWasEvictedIsRememberedAsSuch) {
  PrefixTree tree;
  tree.add("", Tokens{1, 2, 3, 4}, MarkKind::kEnd, 10);
  tree.add("", Tokens{5, 6}, MarkKind::kEnd, 11);
  tree.use("", Tokens{1, 2, 3, 4});
  EXPECT_EQ(tree.evict([](exec::PrefixId id) { return id != 11; }), 10u) << "the other one frees nothing";
  const PrefixTree::Match match = tree.find("", Tokens{1, 2, 3, 4, 5}, 4);
  EXPECT_EQ(match.shared, 4u);
  EXPECT_EQ(match.length, 0u);
  EXPECT_EQ(match.loss, PrefixLoss::kEvicted);
  EXPECT_EQ(tree.evict(kAll), 11u);
  EXPECT_FALSE(tree.evict(kAll));
  EXPECT_TRUE(tree.add("", Tokens{1, 2, 3, 4}, MarkKind::kEnd, 12));
  EXPECT_EQ(tree.find("", Tokens{1, 2, 3, 4, 5}, 4).prefix, 12u);
}

TEST(PrefixTree, TheLastMarksOfTheirBranchesGoFirst) {
  PrefixTree tree;
  tree.add("", Tokens{1}, MarkKind::kEnd, 10);
  tree.add("", Tokens{1, 2, 3}, MarkKind::kEnd, 11);
  EXPECT_EQ(tree.evict_last(), 11u);
  EXPECT_EQ(tree.evict_last(), 10u);
  EXPECT_FALSE(tree.evict_last());
}

TEST(PrefixTree, ForgetsTokensWithoutMarksWhenThereAreTooMany) {
  PrefixTree tree(1000);
  for (text::TokenId i = 0; i < 100; ++i) {
    tree.add(i % 3 == 0 ? "a" : "b", Tokens(50, i), MarkKind::kEnd, static_cast<exec::PrefixId>(i));
    if (i >= 5) {
      EXPECT_EQ(tree.evict(kAll), static_cast<exec::PrefixId>(i - 5));
    }
  }
  EXPECT_EQ(tree.marks(), 5u);
  EXPECT_LE(tree.tokens(), 1000u);
  EXPECT_EQ(tree.find("b", Tokens(51, 1), 50).shared, 0u);
  EXPECT_EQ(tree.find("a", Tokens(51, 99), 50).prefix, 99u);
}

// Random texts over few tokens, against a list of marks that is searched from end to end.
TEST(PrefixTree, IsAListOfMarks) {
  PrefixTree tree;
  std::map<Tokens, exec::PrefixId> marks;
  test::Random random(3);
  exec::PrefixId next = 0;
  for (int round = 0; round < 20000; ++round) {
    Tokens text(1 + random.below(8));
    for (auto& token : text) token = static_cast<text::TokenId>(random.below(3));
    const uint64_t what = random.below(4);
    if (what == 0) {
      EXPECT_EQ(tree.add("", text, MarkKind::kEnd, next), marks.emplace(text, next).second);
      ++next;
    } else if (what == 1 && !marks.empty()) {
      const auto evicted = random.below(2) == 0 ? tree.evict(kAll) : tree.evict_last();
      ASSERT_TRUE(evicted);
      const size_t before = marks.size();
      std::erase_if(marks, [&](const auto& mark) { return mark.second == *evicted; });
      ASSERT_EQ(marks.size() + 1, before);
    } else {
      const auto most = static_cast<uint32_t>(random.below(text.size() + 1));
      uint32_t length = 0;
      for (const auto& [marked, id] : marks) {
        const bool is_prefix = marked.size() <= most && std::equal(marked.begin(), marked.end(), text.begin());
        if (is_prefix) length = std::max(length, static_cast<uint32_t>(marked.size()));
      }
      const PrefixTree::Match match = tree.find("", text, most);
      ASSERT_EQ(match.length, length);
      if (length == 0) continue;
      ASSERT_EQ(marks.at(Tokens(text.begin(), text.begin() + length)), match.prefix);
    }
    ASSERT_EQ(tree.marks(), marks.size());
  }
}

}  // namespace
}  // namespace carat::engine
