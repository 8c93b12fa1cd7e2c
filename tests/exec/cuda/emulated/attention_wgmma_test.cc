// The kernels of prompt attention by warpgroups on the emulated machine, against a reference in double precision: their
// logic is tested where there is no GPU. The same on the card: attention_wgmma_test.cu.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "exec/cuda/kernels/attention_wgmma_256.cuh"
#include "exec/cuda/kernels/attention_wgmma_512.cuh"
#include "support/random.h"

namespace carat::cuda {
namespace {

struct Prompt {
  uint32_t prior, count;  // positions prior ... prior + count of one sequence
};

struct Case {
  AttentionShape shape;
  std::vector<Prompt> prompts;  // one sequence each, rows in order
  float scale = 1.0f;           // of the scores
  bool shuffled = false;        // tiles in random order
};

// Inputs of a case. The cache is as short as it may be, and its slots that no row sees are NaN.
struct Problem {
  AttentionShape shape;
  uint32_t hd, slots = 0;
  std::vector<__half> q, k, v;
  std::vector<Segment> tiles;
  std::vector<__nv_bfloat16> out;

  explicit Problem(const Case& c) : shape(c.shape), hd(c.shape.hd) {
    test::Random random(shape.H * 1000 + c.prompts.front().prior * 7 + c.prompts.front().count);
    const uint32_t tile_queries = (hd == 256 ? Wgmma256::kRows : kGroupRows) / (shape.H / shape.Hkv);
    uint32_t rows = 0, longest = 0;
    for (const Prompt& prompt : c.prompts) {
      longest = std::max(longest, prompt.prior + prompt.count - first_seen(prompt.prior));
    }
    slots = (longest + 63) / 64 * 64;
    k.assign(c.prompts.size() * shape.Hkv * slots * hd, __float2half(NAN));
    v = k;
    for (uint32_t s = 0; s < c.prompts.size(); ++s) {
      const Prompt& prompt = c.prompts[s];
      for (uint32_t head = 0; head < shape.Hkv; ++head) {
        for (uint32_t p = first_seen(prompt.prior); p < prompt.prior + prompt.count; ++p) {
          fill(random, 1.0f, k, row_of(s, head, p), hd);
          fill(random, 1.0f, v, row_of(s, head, p), hd);
        }
      }
      for (uint32_t i = 0; i < prompt.count; i += tile_queries) {
        tiles.push_back({rows + i, std::min(tile_queries, prompt.count - i), prompt.prior + i, s});
      }
      rows += prompt.count;
    }
    if (c.shuffled) {
      for (size_t i = tiles.size(); i > 1; --i) std::swap(tiles[i - 1], tiles[random.below(i)]);
    }
    q.resize(size_t{rows} * shape.H * hd);
    fill(random, c.scale * 3.0f / std::sqrt(static_cast<float>(hd)), q, 0, q.size());
    out.assign(q.size(), __float2bfloat16(NAN));
  }

  // The first position that a query at `position` sees.
  uint32_t first_seen(uint32_t position) const {
    return shape.window != 0 && position >= shape.window ? position - shape.window + 1 : 0;
  }
  // Where a key or value begins in the cache.
  size_t row_of(uint32_t sequence, uint32_t kv_head, uint32_t position) const {
    return ((size_t{sequence} * shape.Hkv + kv_head) * slots + position % slots) * hd;
  }

  static void fill(test::Random& random, float scale, std::vector<__half>& values, size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) values[i] = __float2half(scale * random.uniform(-1.7f, 1.7f));
  }

  void attend(uint64_t seed) {
    const auto map = [&](const std::vector<__half>& cache, uint32_t box_keys) {
      return emulated::describe({reinterpret_cast<const uint8_t*>(cache.data()), cache.size() / hd, uint64_t{hd} * 2,
                                 box_keys, sizeof(__half)});
    };
    KvView kv;
    kv.k = k.data();
    kv.v = v.data();
    kv.slots = slots;
    const auto tile_count = static_cast<uint32_t>(tiles.size());
    const PrefillArguments arguments{shape, q.data(), kv, tiles.data(), tile_count, out.data()};
    if (hd == 256) {
      const WgmmaAttentionJob job{map(k, Wgmma256::kTileKeys), map(v, Wgmma256::kTileKeys), arguments};
      emulated::run({tile_count * shape.Hkv, kWgmmaAttentionThreads, 1, Wgmma256::Memory::kBytes}, seed,
                    [&] { Wgmma256::attend(job, {emulated::kFirstShared}); });
    } else {
      const WgmmaAttentionJob job{map(k, Wgmma512::kKeyBoxRows), map(v, Wgmma512::kValueKeys), arguments};
      emulated::run({(tile_count + 1) / 2 * 2 * shape.Hkv, kWgmmaAttentionThreads, 2, Wgmma512::Memory::kBytes}, seed,
                    [&] { Wgmma512::attend(job, {emulated::kFirstShared}); });
    }
  }

  std::vector<double> reference(const Segment& tile, uint32_t query, uint32_t head) const {
    const uint32_t position = tile.position + query, begin = first_seen(position);
    const uint32_t kv_head = head / (shape.H / shape.Hkv);
    const __half* from = &q[((size_t{tile.row} + query) * shape.H + head) * hd];
    std::vector<double> weights(position + 1 - begin), result(hd, 0.0);
    for (uint32_t p = begin; p <= position; ++p) {
      const __half* key = &k[row_of(tile.sequence, kv_head, p)];
      for (uint32_t i = 0; i < hd; ++i) weights[p - begin] += double{__half2float(from[i])} * __half2float(key[i]);
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    for (double& weight : weights) weight = std::exp(weight - largest);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (uint32_t p = begin; p <= position; ++p) {
      const __half* value = &v[row_of(tile.sequence, kv_head, p)];
      for (uint32_t i = 0; i < hd; ++i) result[i] += weights[p - begin] / sum * __half2float(value[i]);
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
        for (uint32_t i = 0; i < hd; ++i) {
          const double found = __bfloat162float(out[((size_t{tile.row} + query) * shape.H + head) * hd + i]);
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
  SCOPED_TRACE(std::to_string(c.shape.H) + " heads for " + std::to_string(c.shape.Hkv) + " of " +
               std::to_string(c.shape.hd) + ", window " + std::to_string(c.shape.window) + ", " +
               std::to_string(c.prompts.front().count) + " queries after " + std::to_string(c.prompts.front().prior));
  Problem problem(c);
  problem.attend(seed);
  problem.check();
}

// By head dimension and window.
class EmulatedAttention : public testing::TestWithParam<std::pair<uint32_t, uint32_t>> {
 protected:
  static AttentionShape shape(uint32_t H, uint32_t Hkv) { return {H, Hkv, GetParam().first, GetParam().second}; }
};

TEST_P(EmulatedAttention, PromptsFromTheirBeginning) {
  // 16 or 32 queries fill a tile: less than one, one, a pair, a pair and a part, and more keys than a step has.
  for (const uint32_t count : {1u, 5u, 16u, 17u, 32u, 33u, 65u, 150u}) expect_close({shape(4, 1), {{0, count}}});
}

TEST_P(EmulatedAttention, PromptsAfterOtherTokens) {
  for (const uint32_t prior : {1u, 63u, 64u, 95u, 96u, 111u, 112u, 127u, 128u, 129u, 300u, 1001u}) {
    expect_close({shape(4, 1), {{prior, 40}}});
  }
}

TEST_P(EmulatedAttention, GroupsOfHeads) {
  expect_close({shape(1, 1), {{60, 130}}});
  expect_close({shape(3, 1), {{70, 45}}});
  expect_close({shape(8, 2), {{120, 20}}});
  expect_close({shape(16, 1), {{124, 9}}});
  expect_close({shape(32, 1), {{250, 5}}});
}

TEST_P(EmulatedAttention, TilesOfSeveralPrompts) {
  // Neighbouring tiles of different prompts read their keys each by itself.
  expect_close({shape(4, 1), {{0, 33}, {200, 5}, {64, 40}, {0, 1}, {3, 16}}});
  expect_close({shape(4, 2), {{0, 40}, {150, 20}}, 1.0f, true});
}

// As in a chunk padded to a bucket: the list goes on with tiles of no rows.
TEST_P(EmulatedAttention, TilesThatAreEmpty) {
  for (const uint32_t empty : {1u, 2u, 3u}) {
    Problem problem({shape(4, 1), {{100, 40}}});
    problem.tiles.resize(problem.tiles.size() + empty);
    problem.attend(empty);
    problem.check();
  }
}

TEST_P(EmulatedAttention, ScoresFarApart) { expect_close({shape(4, 1), {{200, 40}}, 10.0f}); }

// Whatever runs first: the same bits.
TEST_P(EmulatedAttention, OrderDoesNotMatter) {
  const Case c{shape(4, 1), {{370, 40}}};
  Problem first(c);
  first.attend(1);
  first.check();
  for (uint64_t seed = 2; seed < 6; ++seed) {
    Problem again(c);
    again.attend(seed);
    ASSERT_EQ(std::memcmp(first.out.data(), again.out.data(), first.out.size() * sizeof first.out[0]), 0)
        << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedAttention,
                         testing::Values(std::pair(512u, 0u), std::pair(256u, 0u), std::pair(256u, 128u),
                                         std::pair(256u, 1u), std::pair(256u, 100u)),
                         [](const auto& named) {
                           return "hd" + std::to_string(named.param.first) + "_window" +
                                  std::to_string(named.param.second);
                         });

}  // namespace
}  // namespace carat::cuda
