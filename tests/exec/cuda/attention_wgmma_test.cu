#include "exec/cuda/kernels/attention_wgmma.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "exec/cuda/attention_runs.h"
#include "exec/cuda/kernels/wgmma_product.h"

namespace carat::cuda {
namespace {

class AttentionByWarpgroups : public Attention {
 protected:
  void SetUp() override {
    Attention::SetUp();
    if (!IsSkipped() && !wgmma_available()) GTEST_SKIP() << "skipped: no GPU of compute capability 9.0";
  }

  PrefillCase prompt(uint32_t H, uint32_t Hkv, std::vector<Prompt> prompts, uint64_t seed, float scale = 1.0f) const {
    return {{H, Hkv, kWgmmaAttentionHd, 0},
            std::move(prompts),
            0,
            shared_memory_,
            false,
            scale,
            seed,
            CacheType::kHalf,
            true};
  }
};

TEST_F(AttentionByWarpgroups, QueryCountsAfterPriorLengths) {
  for (const uint32_t count : {1u, 2u, 3u, 7u, 15u, 16u, 17u, 31u, 32u, 33u, 127u, 128u, 129u, 511u, 512u, 513u}) {
    for (const uint32_t prior : {0u, 1u, 63u, 64u, 65u, 127u, 128u, 500u, 1000u}) {
      SCOPED_TRACE("count " + std::to_string(count) + " prior " + std::to_string(prior));
      check_prefill(prompt(4, 1, {{prior, count}}, count * 1009 + prior));
      if (HasFailure()) return;
    }
  }
}

TEST_F(AttentionByWarpgroups, HeadGroups) {
  for (const uint32_t group : {1u, 2u, 3u, 4u, 5u, 8u, 16u, 32u}) {
    SCOPED_TRACE("group " + std::to_string(group));
    check_prefill(prompt(2 * group, 2, {{70, 75}}, group * 31));
    check_prefill(prompt(group, 1, {{3000, 300}}, group * 37));
  }
}

TEST_F(AttentionByWarpgroups, SequencesWithRaggedTiles) {
  PrefillCase c = prompt(8, 2, {{0, 33}, {1000, 5}, {64, 200}, {511, 1}, {0, 1}, {3, 129}}, 5);
  check_prefill(c);
  c.ragged_tiles = true;
  for (uint64_t seed = 1; seed < 6; ++seed) {
    c.seed = seed;
    check_prefill(c);
  }
}

TEST_F(AttentionByWarpgroups, TilesThatAreEmpty) {
  // As in a chunk padded to a bucket: the list goes on with tiles of no rows.
  const PrefillCase c = prompt(8, 2, {{100, 40}}, 3);
  const TestCache cache = prefill_cache(c);
  PrefillRun run;
  run.q.resize(size_t{40} * 8 * kWgmmaAttentionHd);
  RandomHalves(query_scale(kWgmmaAttentionHd)).fill(c.seed + 5, run.q.data(), run.q.size());
  std::vector<Segment> list = cut(c, attention_tile_rows(c.shape, shared_memory_));
  for (int i = 0; i < 4; ++i) list.push_back({});
  const DeviceArray<__half> q = to_device(run.q);
  const DeviceArray<Segment> tiles = to_device(list);
  const DeviceArray<__nv_bfloat16> out(run.q.size(), "test output");
  check(cudaMemset(out.data(), 0xff, out.bytes()), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  attention_prefill_wgmma(
      {c.shape, q.data(), cache.view(), tiles.data(), static_cast<uint32_t>(list.size()), out.data()}, {});
  check(cudaDeviceSynchronize(), "attention_prefill_wgmma");
  run.out = to_host(out);
  expect_close(c, cache, run);
}

TEST_F(AttentionByWarpgroups, ScoresFarApart) { check_prefill(prompt(8, 2, {{200, 150}}, 7, 10.0f)); }

TEST_F(AttentionByWarpgroups, LongPrompt) { check_prefill(prompt(8, 2, {{16000, 512}}, 8)); }

TEST_F(AttentionByWarpgroups, GivesTheSameBitsTwice) {
  const PrefillCase c = prompt(8, 2, {{300, 600}}, 9);
  const TestCache cache = prefill_cache(c);
  const PrefillRun first = run_prefill(c, cache);
  for (int i = 0; i < 5; ++i) {
    const PrefillRun again = run_prefill(c, cache);
    ASSERT_EQ(std::memcmp(first.out.data(), again.out.data(), first.out.size() * sizeof first.out[0]), 0);
  }
}

}  // namespace
}  // namespace carat::cuda
