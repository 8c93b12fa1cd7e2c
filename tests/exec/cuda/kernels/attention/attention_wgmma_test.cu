#include "exec/cuda/kernels/attention/hopper/attention_wgmma.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "exec/cuda/kernels/attention/attention_runs.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"

namespace carat::cuda {
namespace {

// By head dimension and window. Without a GPU: emulated/attention_wgmma_test.cc.
class AttentionByWarpgroups : public Attention, public testing::WithParamInterface<std::pair<uint32_t, uint32_t>> {
 protected:
  void SetUp() override {
    Attention::SetUp();
    if (!IsSkipped() && !wgmma_available()) GTEST_SKIP() << "skipped: no GPU of compute capability 9.0";
  }

  PrefillCase prompts(uint32_t H, uint32_t Hkv, std::vector<Prompt> list, uint64_t seed) const {
    PrefillCase c{{H, Hkv, GetParam().first, GetParam().second}, std::move(list)};
    c.shared_memory = shared_memory_;
    c.seed = seed;
    c.warpgroups = true;
    return c;
  }
};

TEST_P(AttentionByWarpgroups, QueryCountsAfterPriorLengths) {
  for (const uint32_t count : {1u, 2u, 3u, 7u, 15u, 16u, 17u, 31u, 32u, 33u, 127u, 128u, 129u, 511u, 512u, 513u}) {
    for (const uint32_t prior : {0u, 1u, 63u, 64u, 65u, 127u, 128u, 500u, 1000u}) {
      SCOPED_TRACE("count " + std::to_string(count) + " prior " + std::to_string(prior));
      check_prefill(prompts(4, 1, {{prior, count}}, count * 1009 + prior));
      if (HasFailure()) return;
    }
  }
}

TEST_P(AttentionByWarpgroups, HeadGroups) {
  for (const uint32_t group : {1u, 2u, 3u, 4u, 5u, 8u, 16u, 32u}) {
    SCOPED_TRACE("group " + std::to_string(group));
    check_prefill(prompts(2 * group, 2, {{70, 75}}, group * 31));
    check_prefill(prompts(group, 1, {{3000, 300}}, group * 37));
  }
}

TEST_P(AttentionByWarpgroups, WindowEdges) {
  // Priors around the point where the window starts to slide, and around tile borders.
  for (const int shift : {-66, -65, -64, -63, -2, -1, 0, 1, 63, 64, 65}) {
    const int prior = static_cast<int>(GetParam().second) + shift;
    if (prior < 0) continue;
    SCOPED_TRACE("shift " + std::to_string(shift));
    check_prefill(prompts(4, 1, {{static_cast<uint32_t>(prior), 70}}, 5));
  }
}

TEST_P(AttentionByWarpgroups, RingThatHasWrappedManyTimes) {
  const uint32_t window = GetParam().second;
  if (window == 0) return;
  for (const uint32_t prior : {window + 189u, 5000u, 5001u, 7777u}) {
    SCOPED_TRACE("prior " + std::to_string(prior));
    PrefillCase c = prompts(8, 2, {{prior, 190}}, prior);
    c.cells = (window + 190 + 63) / 64 * 64;
    check_prefill(c);
  }
}

TEST_P(AttentionByWarpgroups, SequencesWithRaggedTiles) {
  PrefillCase c = prompts(8, 2, {{0, 33}, {1000, 5}, {64, 200}, {511, 1}, {0, 1}, {3, 129}}, 5);
  c.cells = 1088;
  check_prefill(c);
  c.ragged_tiles = true;
  for (uint64_t seed = 1; seed < 6; ++seed) {
    c.seed = seed;
    check_prefill(c);
  }
}

TEST_P(AttentionByWarpgroups, TilesThatAreEmpty) {
  // As in a chunk padded to a bucket: the list goes on with tiles of no rows.
  PrefillCase c = prompts(8, 2, {{100, 40}}, 3);
  c.empty_tiles = 5;
  check_prefill(c);
}

TEST_P(AttentionByWarpgroups, ScoresFarApart) {
  PrefillCase c = prompts(8, 2, {{200, 150}}, 7);
  c.scale = 10.0f;
  check_prefill(c);
}

TEST_P(AttentionByWarpgroups, LongPrompt) { check_prefill(prompts(8, 2, {{16000, 512}}, 8)); }

TEST_P(AttentionByWarpgroups, GivesTheSameBitsTwice) {
  const PrefillCase c = prompts(8, 2, {{300, 600}}, 9);
  const TestCache cache = prefill_cache(c);
  const PrefillRun first = run_prefill(c, cache);
  for (int i = 0; i < 5; ++i) {
    const PrefillRun again = run_prefill(c, cache);
    ASSERT_EQ(std::memcmp(first.out.data(), again.out.data(), first.out.size() * sizeof first.out[0]), 0);
  }
}

// One of each kernel, for tools under which a launch takes hundreds of times longer.
TEST_P(AttentionByWarpgroups, SmallPrefill) { check_prefill(prompts(4, 2, {{70, 40}}, 4)); }

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionByWarpgroups,
                         testing::Values(std::pair(512u, 0u), std::pair(256u, 0u), std::pair(256u, 128u),
                                         std::pair(256u, 512u), std::pair(256u, 1024u), std::pair(256u, 1u)),
                         [](const auto& info) {
                           return "hd" + std::to_string(info.param.first) + "_window" +
                                  std::to_string(info.param.second);
                         });

}  // namespace
}  // namespace carat::cuda
