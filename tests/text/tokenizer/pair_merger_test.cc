#include "text/tokenizer/pair_merger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/random.h"

namespace carat::text {
namespace {

std::vector<TokenId> merged_naively(const MergeTable& merges, std::vector<TokenId> symbols) {
  for (;;) {
    uint32_t best_rank = MergeTable::kNone;
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const uint32_t rank = merges.rank(symbols[i], symbols[i + 1]);
      if (rank < best_rank) {
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == MergeTable::kNone) return symbols;
    symbols[best] = merges.result(best_rank);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Random merges over few symbols: unlike those of a trained vocabulary they also yield symbols that merge at a lower
// rank than the one that made them. Lengths on both sides of the border between the two algorithms.
TEST(PairMerger, AgreesWithTheDefinition) {
  carat::test::Random random(11);
  for (int round = 0; round < 400; ++round) {
    const size_t letters = 1 + random.below(4), count = random.below(60);
    MergeTable merges(count);
    for (size_t i = 0; i < count; ++i) {
      const auto known = static_cast<uint64_t>(letters + i);
      merges.add(static_cast<TokenId>(random.below(known)), static_cast<TokenId>(random.below(known)),
                 static_cast<TokenId>(random.below(2) == 0 ? letters + i : random.below(known)));
    }
    PairMerger merger(merges);
    for (const size_t length : {0, 1, 2, 3, 17, 31, 32, 33, 34, 100, 300}) {
      std::vector<TokenId> symbols(length);
      for (TokenId& symbol : symbols) symbol = static_cast<TokenId>(random.below(letters));
      const auto expected = merged_naively(merges, symbols);
      const auto result = merger.merge(symbols);
      ASSERT_TRUE(std::equal(result.begin(), result.end(), expected.begin(), expected.end()))
          << "round " << round << ", " << length << " symbols";
    }
  }
}

TEST(PairMerger, TakesTheLeftmostOfEqualPairs) {
  MergeTable merges(1);
  merges.add(0, 0, 1);
  PairMerger merger(merges);
  for (const size_t length : {3, 5, 33, 101}) {
    std::vector<TokenId> symbols(length, 0);
    const auto result = merger.merge(symbols);
    ASSERT_EQ(result.size(), length / 2 + 1);
    EXPECT_TRUE(std::all_of(result.begin(), result.end() - 1, [](TokenId id) { return id == 1; }));
    EXPECT_EQ(result.back(), 0);
  }
}

}  // namespace
}  // namespace carat::text
