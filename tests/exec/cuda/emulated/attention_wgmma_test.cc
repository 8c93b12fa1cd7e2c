// The kernel of attention_wgmma.cuh on the emulated machine, against a reference in double precision: its logic is
// tested where there is no GPU. The same on the card: attention_wgmma_test.cu.
#include "exec/cuda/kernels/attention_wgmma.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "support/random.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kHd = kWgmmaAttentionHd;

struct Prompt {
  uint32_t prior, count;  // positions prior ... prior + count of one sequence
};

struct Case {
  uint32_t H, Hkv;
  std::vector<Prompt> prompts;  // one sequence each, rows in order
  float scale = 1.0f;           // of the scores
  bool shuffled = false;        // tiles in random order
};

// Inputs of a case. Slots of the cache that no position has are NaN.
struct Problem {
  AttentionShape shape;
  uint32_t slots = 0;
  std::vector<__half> q, k, v;
  std::vector<Segment> tiles;
  std::vector<__nv_bfloat16> out;

  explicit Problem(const Case& c) : shape{c.H, c.Hkv, kHd, 0} {
    test::Random random(c.H * 1000 + c.prompts.front().prior * 7 + c.prompts.front().count);
    const uint32_t tile_queries = kWgmmaAttentionRows / (c.H / c.Hkv);
    uint32_t rows = 0, longest = 0;
    for (const Prompt& prompt : c.prompts) longest = std::max(longest, prompt.prior + prompt.count);
    slots = (longest + 63) / 64 * 64;
    k.assign(c.prompts.size() * c.Hkv * slots * kHd, __float2half(NAN));
    v = k;
    for (uint32_t s = 0; s < c.prompts.size(); ++s) {
      const Prompt& prompt = c.prompts[s];
      for (uint32_t head = 0; head < c.Hkv; ++head) {
        const size_t first = (size_t{s} * c.Hkv + head) * slots * kHd,
                     count = size_t{prompt.prior + prompt.count} * kHd;
        fill(random, 1.0f, k, first, count);
        fill(random, 1.0f, v, first, count);
      }
      for (uint32_t i = 0; i < prompt.count; i += tile_queries) {
        tiles.push_back({rows + i, std::min(tile_queries, prompt.count - i), prompt.prior + i, s});
      }
      rows += prompt.count;
    }
    if (c.shuffled) {
      for (size_t i = tiles.size(); i > 1; --i) std::swap(tiles[i - 1], tiles[random.below(i)]);
    }
    q.resize(size_t{rows} * c.H * kHd);
    fill(random, c.scale * 3.0f / std::sqrt(static_cast<float>(kHd)), q, 0, q.size());
    out.assign(q.size(), __float2bfloat16(NAN));
  }

  static void fill(test::Random& random, float scale, std::vector<__half>& values, size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) values[i] = __float2half(scale * random.uniform(-1.7f, 1.7f));
  }

  void attend(uint64_t seed) {
    const auto map = [&](const std::vector<__half>& cache, uint32_t box_keys) {
      return emulated::describe(
          {reinterpret_cast<const uint8_t*>(cache.data()), cache.size() / kHd, kHd * 2, box_keys, sizeof(__half)});
    };
    KvView kv;
    kv.k = k.data();
    kv.v = v.data();
    kv.slots = slots;
    const auto tile_count = static_cast<uint32_t>(tiles.size());
    const WgmmaAttentionJob job{map(k, kAttentionGroupKeys),
                                map(v, kAttentionValueKeys),
                                {shape, q.data(), kv, tiles.data(), tile_count, out.data()}};
    emulated::run({(tile_count + 1) / 2 * 2 * shape.Hkv, kWgmmaAttentionThreads, 2, WgmmaAttentionMemory::kBytes}, seed,
                  [&] { attend_by_warpgroups(job, {emulated::kFirstShared}); });
  }

  std::vector<double> reference(const Segment& tile, uint32_t query, uint32_t head) const {
    const uint32_t keys = tile.position + query + 1, kv_head = head / (shape.H / shape.Hkv);
    const size_t first = (size_t{tile.sequence} * shape.Hkv + kv_head) * slots * kHd;
    const __half* from = &q[((size_t{tile.row} + query) * shape.H + head) * kHd];
    std::vector<double> weights(keys), result(kHd, 0.0);
    for (uint32_t key = 0; key < keys; ++key) {
      for (uint32_t i = 0; i < kHd; ++i) {
        weights[key] += double{__half2float(from[i])} * __half2float(k[first + size_t{key} * kHd + i]);
      }
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    for (double& weight : weights) weight = std::exp(weight - largest);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (uint32_t key = 0; key < keys; ++key) {
      for (uint32_t i = 0; i < kHd; ++i) {
        result[i] += weights[key] / sum * __half2float(v[first + size_t{key} * kHd + i]);
      }
    }
    return result;
  }

  // Every third row of each tile and the last one, one head of each.
  void check() const {
    double errors = 0.0, squares = 0.0;
    for (const Segment& tile : tiles) {
      for (uint32_t query = 0; query < tile.count; query = query + 3 < tile.count ? query + 3 : query + 1) {
        const uint32_t head = (tile.row + query) % shape.H;
        const std::vector<double> expected = reference(tile, query, head);
        for (uint32_t i = 0; i < kHd; ++i) {
          const double found = __bfloat162float(out[((size_t{tile.row} + query) * shape.H + head) * kHd + i]);
          ASSERT_TRUE(std::isfinite(found))
              << "position " << tile.position + query << " head " << head << " column " << i;
          errors += (found - expected[i]) * (found - expected[i]);
          squares += expected[i] * expected[i];
        }
      }
    }
    // The rounding of the result to bf16 alone is 1.65e-3.
    EXPECT_LT(std::sqrt(errors / squares), 2.5e-3);
    for (const __nv_bfloat16 x : out) ASSERT_TRUE(std::isfinite(__bfloat162float(x)));
  }
};

void expect_close(const Case& c, uint64_t seed = 1) {
  SCOPED_TRACE(std::to_string(c.H) + " heads for " + std::to_string(c.Hkv) + ", " +
               std::to_string(c.prompts.front().count) + " queries after " + std::to_string(c.prompts.front().prior));
  Problem problem(c);
  problem.attend(seed);
  problem.check();
}

TEST(EmulatedAttention, PromptsFromTheirBeginning) {
  // 16 queries fill a tile: less than one, one, a pair, a pair and a part, and beyond one step of 128 keys.
  for (const uint32_t count : {1u, 5u, 16u, 17u, 32u, 33u, 150u}) expect_close({4, 1, {{0, count}}});
}

TEST(EmulatedAttention, PromptsAfterOtherTokens) {
  for (const uint32_t prior : {1u, 63u, 64u, 95u, 96u, 111u, 112u, 127u, 128u, 129u, 300u}) {
    expect_close({4, 1, {{prior, 32}}});
  }
}

TEST(EmulatedAttention, GroupsOfHeads) {
  expect_close({1, 1, {{60, 130}}});
  expect_close({3, 1, {{70, 45}}});
  expect_close({8, 2, {{120, 20}}});
  expect_close({16, 1, {{124, 9}}});
  expect_close({32, 1, {{250, 5}}});
}

TEST(EmulatedAttention, TilesOfSeveralPrompts) {
  // Neighbouring tiles of different prompts read their keys each by itself.
  expect_close({4, 1, {{0, 33}, {200, 5}, {64, 40}, {0, 1}, {3, 16}}});
  expect_close({4, 2, {{0, 40}, {150, 20}}, 1.0f, true});
}

// As in a chunk padded to a bucket: the list goes on with tiles of no rows.
TEST(EmulatedAttention, TilesThatAreEmpty) {
  for (const uint32_t empty : {1u, 2u, 3u}) {
    Problem problem({4, 1, {{100, 40}}});
    problem.tiles.resize(problem.tiles.size() + empty);
    problem.attend(empty);
    problem.check();
  }
}

TEST(EmulatedAttention, ScoresFarApart) { expect_close({4, 1, {{200, 40}}, 10.0f}); }

// Whatever runs first: the same bits.
TEST(EmulatedAttention, OrderDoesNotMatter) {
  Problem first({4, 1, {{370, 32}}});
  first.attend(1);
  first.check();
  for (uint64_t seed = 2; seed < 6; ++seed) {
    Problem again({4, 1, {{370, 32}}});
    again.attend(seed);
    ASSERT_EQ(std::memcmp(first.out.data(), again.out.data(), first.out.size() * sizeof first.out[0]), 0)
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace carat::cuda
