#include "exec/cuda/passes/ple_cache.h"

#include <gtest/gtest.h>

#include <set>

#include "exec/cuda/plan/prompt_bucket.h"
#include "support/random.h"

namespace carat::cuda {
namespace {

struct Placed {
  std::vector<int32_t> places;
  std::vector<PleFetch> fetches;
};

Placed place(PleCache& cache, const std::vector<int32_t>& tokens, uint32_t slices = 4) {
  Placed placed{std::vector<int32_t>(tokens.size()), std::vector<PleFetch>(tokens.size())};
  cache.place(tokens, slices, placed.places.data(), placed.fetches.data());
  return placed;
}

// Stands for the device's memory: which token's row lies in each place, and how much of it.
class Memory {
 public:
  explicit Memory(uint32_t rows) : tokens_(rows, -1), slices_(rows, 0) {}
  void run(PleCache& cache, const std::vector<int32_t>& tokens, uint32_t slices) {
    const Placed placed = place(cache, tokens, slices);
    for (const PleFetch& fetch : placed.fetches) {
      if (fetch.token < 0) continue;
      ASSERT_LT(fetch.place, tokens_.size());
      tokens_[fetch.place] = fetch.token;
      slices_[fetch.place] = slices;
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<size_t>(placed.places[i]);
      ASSERT_EQ(tokens_[at], tokens[i]) << "row " << i;
      ASSERT_GE(slices_[at], slices) << "row " << i;
    }
  }

 private:
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> slices_;
};

TEST(PleCache, RepeatedTokensAreFetchedOnce) {
  PleCache cache(8);
  const Placed first = place(cache, {5, 7, 5, 5, 7});
  EXPECT_EQ(cache.fetched(), 2u);
  EXPECT_EQ(first.places[0], first.places[2]);
  EXPECT_NE(first.places[0], first.places[1]);
  EXPECT_EQ(first.fetches[0].token, 5);
  EXPECT_LT(first.fetches[2].token, 0) << "row 0 brings it";
  place(cache, {7, 9});
  EXPECT_EQ(cache.fetched(), 3u) << "7 was still there";
}

TEST(PleCache, MoreLayersAreFetchedAgain) {
  PleCache cache(4);
  place(cache, {1}, 3);
  EXPECT_EQ(place(cache, {1}, 2).fetches[0].token, -1);
  EXPECT_EQ(place(cache, {1, 1}, 5).fetches[0].token, 1);
  EXPECT_EQ(cache.fetched(), 2u);
}

TEST(PleCache, WhatIsUsedAgainStays) {
  PleCache cache(4);
  place(cache, {100});
  for (int32_t token = 0; token < 50; ++token) place(cache, {100, token});
  EXPECT_EQ(cache.fetched(), 51u);
}

TEST(PleCache, EveryRowFindsItsOwn) {
  test::Random random(3);
  for (const uint32_t rows : {1u, 2u, 16u, 64u}) {
    PleCache cache(rows);
    Memory memory(rows);
    for (int pass = 0; pass < 200; ++pass) {
      std::vector<int32_t> tokens(1 + random.below(rows));
      for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(3 * rows));
      memory.run(cache, tokens, 1 + static_cast<uint32_t>(random.below(3)));
    }
  }
}

TEST(PleCache, MemoryIsLaidOutAsTheTable) {
  for (const Packing packing : {Packing::kQ8, Packing::kQ4, Packing::kQ4K, Packing::kQ5K, Packing::kQ6K, Packing::kF16,
                                Packing::kBF16, Packing::kF32}) {
    Carver carver;
    const PackedView view = carve_ple_rows(carver, packing, 700, 9);
    EXPECT_EQ(carver.used(), packed_matrix_bytes(packing, 9, 700));
    EXPECT_EQ(view.steps, 3u);
  }
}

TEST(PromptBucket, PadsLittleAndStaysWithinAChunk) {
  std::set<uint32_t> buckets;
  for (uint32_t rows = 9; rows <= kLargestPromptBucket; ++rows) {
    const uint32_t bucket = prompt_bucket(rows, 4096);
    buckets.insert(bucket);
    EXPECT_GE(bucket, rows);
    EXPECT_LT(bucket - rows, 64u) << "padding rows must fit the smallest ring of a sequence";
    EXPECT_EQ(prompt_bucket(bucket, 4096), bucket);
    EXPECT_EQ(prompt_bucket(rows, rows), rows);
  }
  EXPECT_EQ(buckets.size(), 14u);
  EXPECT_EQ(prompt_bucket(kLargestPromptBucket + 1, 4096), 0u);
}

}  // namespace
}  // namespace carat::cuda
