// The kernels of prompt attention by warpgroups on the emulated machine, against a reference in double precision: their
// logic is tested where there is no GPU. The same on the card: attention_wgmma_test.cu.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "exec/cuda/kernels/attention/attention_reference.h"
#include "exec/cuda/kernels/attention/hopper/attention_wgmma_256.cuh"
#include "exec/cuda/kernels/attention/hopper/attention_wgmma_512.cuh"

namespace carat::cuda {
namespace {

PrefillRun run_emulated(const PrefillCase& c, const HostCache& cache, uint64_t seed) {
  const AttentionShape& shape = c.shape;
  const std::vector<Segment> tiles = cut(c, kWarpgroupTileRows / (shape.H / shape.Hkv));
  PrefillRun run = prefill_run(c);
  run.out.assign(run.q.size(), __float2bfloat16(NAN));
  const auto map = [&](const std::vector<__half>& values, uint32_t box_keys) {
    return emulated::describe({reinterpret_cast<const uint8_t*>(values.data()), values.size() / shape.hd,
                               uint64_t{shape.hd} * 2, box_keys, sizeof(__half)});
  };
  const auto count = static_cast<uint32_t>(tiles.size());
  const PrefillArguments arguments{shape, run.q.data(), {.cells = cache.cells}, tiles.data(), count, run.out.data()};
  if (shape.hd == Wgmma256::kHd) {
    const WgmmaAttentionJob job{map(cache.k.halves, Wgmma256::kTileKeys), map(cache.v.halves, Wgmma256::kTileKeys),
                                arguments};
    emulated::run({count * shape.Hkv, kWgmmaAttentionThreads, 1, Wgmma256::Memory::kBytes}, seed,
                  [&] { Wgmma256::attend(job, {emulated::kFirstShared}); });
  } else {
    const WgmmaAttentionJob job{map(cache.k.halves, Wgmma512::kBlockKeys), map(cache.v.halves, Wgmma512::kValueKeys),
                                arguments};
    emulated::run({count * 2 * shape.Hkv, kWgmmaAttentionThreads, 2, Wgmma512::Memory::kBytes}, seed,
                  [&] { Wgmma512::attend(job, {emulated::kFirstShared}); });
  }
  return run;
}

void check_emulated(const PrefillCase& c, uint64_t seed = 1) {
  SCOPED_TRACE(describe(c.shape) + ", " + std::to_string(c.prompts.front().count) + " queries after " +
               std::to_string(c.prompts.front().prior));
  const HostCache cache = cache_for<HostCache>(c);
  expect_close(c, cache, run_emulated(c, cache, seed));
}

// By head dimension and window.
class EmulatedAttention : public testing::TestWithParam<std::pair<uint32_t, uint32_t>> {
 protected:
  static PrefillCase prompts(uint32_t H, uint32_t Hkv, std::vector<Prompt> list) {
    PrefillCase c{{H, Hkv, GetParam().first, GetParam().second}, std::move(list)};
    c.seed = H * 1000 + c.prompts.front().prior * 7 + c.prompts.front().count;
    return c;
  }
};

TEST_P(EmulatedAttention, PromptsFromTheirBeginning) {
  // 32 queries fill a tile, 16 those of a warpgroup: parts of one, one, more, and more keys than a step has.
  for (const uint32_t count : {1u, 5u, 16u, 17u, 32u, 33u, 65u, 150u}) check_emulated(prompts(4, 1, {{0, count}}));
}

TEST_P(EmulatedAttention, PromptsAfterOtherTokens) {
  for (const uint32_t prior : {1u, 63u, 64u, 95u, 96u, 111u, 112u, 127u, 128u, 129u, 300u, 1001u}) {
    check_emulated(prompts(4, 1, {{prior, 40}}));
  }
}

TEST_P(EmulatedAttention, GroupsOfHeads) {
  check_emulated(prompts(1, 1, {{60, 130}}));
  check_emulated(prompts(3, 1, {{70, 45}}));
  check_emulated(prompts(8, 2, {{120, 20}}));
  check_emulated(prompts(16, 1, {{124, 9}}));
  check_emulated(prompts(32, 1, {{250, 5}}));
}

TEST_P(EmulatedAttention, TilesOfSeveralPrompts) {
  check_emulated(prompts(4, 1, {{0, 33}, {200, 5}, {64, 40}, {0, 1}, {3, 16}}));
  PrefillCase ragged = prompts(4, 2, {{0, 40}, {150, 20}});
  ragged.ragged_tiles = true;
  check_emulated(ragged);
}

// As in a chunk padded to a bucket: the list goes on with tiles of no rows.
TEST_P(EmulatedAttention, TilesThatAreEmpty) {
  PrefillCase c = prompts(4, 1, {{100, 40}});
  for (c.empty_tiles = 1; c.empty_tiles < 4; ++c.empty_tiles) check_emulated(c);
}

TEST_P(EmulatedAttention, ScoresFarApart) {
  PrefillCase c = prompts(4, 1, {{200, 40}});
  c.scale = 10.0f;
  check_emulated(c);
}

// Whatever runs first: the same bits.
TEST_P(EmulatedAttention, OrderDoesNotMatter) {
  const PrefillCase c = prompts(4, 1, {{370, 40}});
  const HostCache cache = cache_for<HostCache>(c);
  const PrefillRun first = run_emulated(c, cache, 1);
  expect_close(c, cache, first);
  for (uint64_t seed = 2; seed < 6; ++seed) {
    const PrefillRun again = run_emulated(c, cache, seed);
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
