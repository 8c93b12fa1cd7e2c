// Attention over q8_0 caches: the same comparisons as for fp16 ones, against the values that the cache holds.
#include <gtest/gtest.h>

#include <cstring>

#include "exec/cuda/kernels/attention/attention_runs.h"

namespace carat::cuda {
namespace {

using AttentionQ8 = Attention;

TEST_F(AttentionQ8, PrefillQueryCountsAfterPriorLengths) {
  for (const AttentionShape& shape : {AttentionShape{8, 2, 256, 0}, AttentionShape{8, 2, 256, 128},
                                      AttentionShape{4, 1, 512, 0}, AttentionShape{2, 2, 64, 128}}) {
    for (const uint32_t count : {1u, 3u, 33u, 128u, 129u, 513u}) {
      for (const uint32_t prior : {0u, 1u, 63u, 64u, 500u}) {
        SCOPED_TRACE(describe(shape) + " count " + std::to_string(count) + " prior " + std::to_string(prior));
        const uint32_t limit = (count + prior) % 2 == 0 ? kSmallCard : shared_memory_;
        check_prefill({shape, {{prior, count}}, 0, limit, false, 1.0f, count * 1009 + prior, CacheType::kQ8});
        if (HasFatalFailure() || HasNonfatalFailure()) return;
      }
    }
  }
}

TEST_F(AttentionQ8, PrefillHeadGroupsAndWidths) {
  for (const uint32_t group : {1u, 3u, 8u, 32u}) {
    for (const uint32_t hd : {32u, 96u, 128u, 160u, 256u, 288u, 512u}) {
      for (const uint32_t limit : {shared_memory_, kSmallCard}) {
        const AttentionShape shape{2 * group, 2, hd, 0};
        SCOPED_TRACE(describe(shape));
        check_prefill({shape, {{70, 90}}, 0, limit, false, 1.0f, group * 31 + hd, CacheType::kQ8});
      }
    }
  }
}

TEST_F(AttentionQ8, PrefillSequencesWithRaggedTilesInWrappedRings) {
  const std::vector<Prompt> prompts = {{0, 33}, {5000, 5}, {64, 200}, {1511, 1}, {0, 1}, {2003, 129}};
  for (const uint32_t hd : {32u, 256u, 512u}) {
    for (const uint32_t limit : {shared_memory_, kSmallCard}) {
      const AttentionShape shape{8, 2, hd, 512};
      SCOPED_TRACE(describe(shape));
      check_prefill({shape, prompts, 704, limit, true, 1.0f, hd, CacheType::kQ8});
    }
  }
}

TEST_F(AttentionQ8, DecodeAtEveryLength) {
  for (const AttentionShape& shape : {AttentionShape{4, 1, 512, 0}, AttentionShape{4, 1, 256, 0}}) {
    const TestCache cache(shape.Hkv, shape.hd, cells_for(20000), {{0, 20000}}, shape.hd, CacheType::kQ8);
    std::vector<uint32_t> positions;
    for (const uint32_t length : lengths_up_to(20000)) positions.push_back(length - 1);
    for (const uint32_t splits : {1u, 7u, 132u, 512u}) {
      const DecodeCase c{shape, positions, std::vector<uint32_t>(positions.size(), 0), splits, 1.0f, splits};
      SCOPED_TRACE(describe(shape) + " splits " + std::to_string(splits));
      expect_close(c, cache, run_decode(c, cache));
    }
  }
}

TEST_F(AttentionQ8, DecodeReadsNothingBeyondTheLength) {
  // The scale of every other cell is NaN.
  for (const AttentionShape& shape : {AttentionShape{8, 2, 512, 0}, AttentionShape{8, 2, 256, 0},
                                      AttentionShape{8, 2, 256, 512}, AttentionShape{4, 2, 32, 128}}) {
    for (const uint32_t length : lengths_up_to(1100)) {
      SCOPED_TRACE(describe(shape) + " length " + std::to_string(length));
      const TestCache cache = decode_cache(shape, length - 1, length, CacheType::kQ8);
      const uint32_t splits = attention_decode_splits(shape, 1, length, sm_count_);
      const DecodeCase c{shape, {length - 1}, {0}, splits, 1.0f, length};
      expect_close(c, cache, run_decode(c, cache));
    }
  }
}

TEST_F(AttentionQ8, DecodeHeadGroupsAndWidths) {
  for (const uint32_t group : {1u, 3u, 8u, 16u, 17u, 32u}) {
    for (const uint32_t hd : {32u, 64u, 96u, 128u, 224u, 256u, 288u, 512u}) {
      const AttentionShape shape{2 * group, 2, hd, 0};
      const TestCache cache = decode_cache(shape, 600, group, CacheType::kQ8);
      for (const uint32_t splits : {1u, 3u, 16u}) {
        SCOPED_TRACE(describe(shape) + " splits " + std::to_string(splits));
        const DecodeCase c{shape, {600}, {0}, splits, 1.0f, group * 31 + hd};
        expect_close(c, cache, run_decode(c, cache));
      }
    }
  }
}

TEST_F(AttentionQ8, DecodeRowsOfManySequencesInWrappedRings) {
  const AttentionShape shape{8, 2, 256, 512};
  std::vector<TestCache::Range> ranges;
  DecodeCase c{shape, {}, {}, 3, 1.0f, 7};
  for (uint32_t s = 0; s < 40; ++s) {
    const uint32_t position = s * s * 13 + s;
    ranges.push_back({first_visible(shape, position), position + 1});
    c.positions.push_back(position);
    c.sequences.push_back(39 - s);
  }
  std::reverse(ranges.begin(), ranges.end());
  const TestCache cache(shape.Hkv, shape.hd, 512, ranges, 11, CacheType::kQ8);
  expect_close(c, cache, run_decode(c, cache));
}

TEST_F(AttentionQ8, GivesTheSameBitsEveryTime) {
  for (const uint32_t hd : {256u, 512u}) {
    const AttentionShape shape{8, 2, hd, 0};
    const TestCache cache(shape.Hkv, shape.hd, cells_for(9000), {{0, 9000}}, 2, CacheType::kQ8);
    const DecodeCase c{shape, {8999, 700, 3, 4444}, {0, 0, 0, 0}, 40, 1.0f, 13};
    const DecodeRun first = run_decode(c, cache);
    for (int i = 0; i < 10; ++i) {
      const DecodeRun again = run_decode(c, cache, 20, overlap_);
      ASSERT_EQ(std::memcmp(first.out.data(), again.out.data(), first.out.size() * sizeof first.out[0]), 0);
    }
    const PrefillCase p{shape, {{300, 200}}, 0, shared_memory_, false, 1.0f, 9, CacheType::kQ8};
    const TestCache prompt = prefill_cache(p);
    const PrefillRun one = run_prefill(p, prompt), two = run_prefill(p, prompt);
    EXPECT_EQ(std::memcmp(one.out.data(), two.out.data(), one.out.size() * sizeof one.out[0]), 0);
  }
}

}  // namespace
}  // namespace carat::cuda
