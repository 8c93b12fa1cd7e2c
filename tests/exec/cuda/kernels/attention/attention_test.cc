#include "exec/cuda/kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "exec/cuda/kernels/attention/attention_runs.h"

namespace carat::cuda {
namespace {

class AttentionPrefill : public Attention, public testing::WithParamInterface<AttentionShape> {};

TEST_P(AttentionPrefill, QueryCountsAfterPriorLengths) {
  for (const uint32_t count : {1u, 2u, 3u, 7u, 31u, 33u, 127u, 128u, 129u, 511u, 512u, 513u}) {
    for (const uint32_t prior : {0u, 1u, 63u, 64u, 65u, 500u, 1000u}) {
      SCOPED_TRACE(describe(GetParam()) + " count " + std::to_string(count) + " prior " + std::to_string(prior));
      // Every second case runs the tiles of a card with 99 KB of shared memory.
      const uint32_t limit = (count + prior) % 2 == 0 ? kSmallCard : shared_memory_;
      check_prefill({GetParam(), {{prior, count}}, 0, limit, false, 1.0f, count * 1009 + prior});
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionPrefill,
                         testing::Values(AttentionShape{4, 2, 256, 0}, AttentionShape{8, 2, 256, 128},
                                         AttentionShape{8, 1, 256, 512}, AttentionShape{4, 1, 512, 0},
                                         AttentionShape{8, 1, 512, 1024}, AttentionShape{2, 2, 64, 128}),
                         [](const auto& tested) {
                           return "hd" + std::to_string(tested.param.hd) + "_window" +
                                  std::to_string(tested.param.window);
                         });

TEST_F(Attention, PrefillHeadGroupsAndWidths) {
  for (const uint32_t group : {1u, 2u, 3u, 4u, 8u, 16u, 32u}) {
    for (const uint32_t hd : {16u, 32u, 64u, 112u, 128u, 208u, 256u, 272u, 512u}) {
      for (const uint32_t limit : {shared_memory_, kSmallCard}) {
        const AttentionShape shape{2 * group, 2, hd, group % 2 == 0 ? 100u : 0u};
        SCOPED_TRACE(describe(shape));
        check_prefill({shape, {{70, 75}}, 0, limit, false, 1.0f, group * 31 + hd});
      }
    }
  }
}

// One of every kernel, for tools under which a launch takes hundreds of times longer.
TEST_F(Attention, SmallPrefillAndDecode) {
  for (const CacheType type : {CacheType::kHalf, CacheType::kQ8}) {
    for (const uint32_t hd : {128u, 256u, 512u}) {
      const AttentionShape shape{4, 2, hd, hd == 256 ? 40u : 0u};
      SCOPED_TRACE(describe(shape));
      for (const uint32_t limit : {shared_memory_, kSmallCard}) {
        check_prefill({shape, {{70, 9}}, 0, limit, false, 1.0f, hd, type});
      }
      const TestCache cache = decode_cache(shape, 129, hd, type);
      const DecodeCase c{shape, {129}, {0}, 2, 1.0f, hd};
      expect_close(c, cache, run_decode(c, cache));
    }
  }
}

TEST_F(Attention, PrefillWindowEdges) {
  // Priors around the point where the window starts to slide, and around tile borders.
  for (const uint32_t window : {1u, 2u, 64u, 128u, 512u, 1024u}) {
    for (const uint32_t hd : {256u, 512u}) {
      for (const int shift : {-66, -65, -64, -63, -2, -1, 0, 1, 63, 64, 65}) {
        if (static_cast<int>(window) + shift < 0) continue;
        const AttentionShape shape{4, 1, hd, window};
        SCOPED_TRACE(describe(shape) + " shift " + std::to_string(shift));
        check_prefill(
            {shape, {{window + static_cast<uint32_t>(shift), 70}}, 0, shared_memory_, false, 1.0f, window + hd});
      }
    }
  }
}

TEST_F(Attention, PrefillRingThatHasWrappedManyTimes) {
  for (const uint32_t hd : {64u, 256u, 512u}) {
    for (const uint32_t cells : {320u, 384u}) {
      // 128 + 190 positions are alive: the ring is just large enough, and its start falls anywhere in a tile.
      for (const uint32_t prior : {317u, 5000u, 5001u, 7777u}) {
        const AttentionShape shape{8, 2, hd, 128};
        SCOPED_TRACE(describe(shape) + " cells " + std::to_string(cells) + " prior " + std::to_string(prior));
        check_prefill({shape, {{prior, 190}}, cells, shared_memory_, false, 1.0f, prior + cells});
      }
    }
  }
}

TEST_F(Attention, PrefillSequencesWithRaggedTiles) {
  const std::vector<Prompt> prompts = {{0, 33}, {1000, 5}, {64, 200}, {511, 1}, {0, 1}, {3, 129}};
  for (const uint32_t hd : {32u, 256u, 512u}) {
    for (const uint32_t window : {0u, 512u}) {
      for (const uint32_t limit : {shared_memory_, kSmallCard}) {
        const AttentionShape shape{8, 2, hd, window};
        SCOPED_TRACE(describe(shape));
        check_prefill({shape, prompts, 1088, limit, true, 1.0f, hd + window});
      }
    }
  }
}

TEST_F(Attention, PrefillWithScoresFarApart) {
  // Scores of deviation 30: most probabilities underflow, and the running maximum decides everything.
  for (const uint32_t hd : {256u, 512u}) {
    check_prefill({{8, 2, hd, 0}, {{200, 150}}, 0, shared_memory_, false, 10.0f, hd});
  }
}

TEST_F(Attention, PrefillGivesTheSameBitsTwice) {
  for (const uint32_t hd : {256u, 512u}) {
    const PrefillCase c{{8, 2, hd, 0}, {{300, 200}}, 0, shared_memory_, false, 1.0f, 9};
    const TestCache cache = prefill_cache(c);
    const PrefillRun first = run_prefill(c, cache), second = run_prefill(c, cache);
    EXPECT_EQ(std::memcmp(first.out.data(), second.out.data(), first.out.size() * sizeof first.out[0]), 0);
  }
}

// ----------------------------------------------------------------------------------------------------------- decode

TEST_F(Attention, DecodeAtEveryLength) {
  // Rows of one long sequence: each sees its own length.
  for (const AttentionShape& shape : {AttentionShape{4, 1, 512, 0}, AttentionShape{4, 1, 256, 0}}) {
    const TestCache cache(shape.Hkv, shape.hd, cells_for(40000), {{0, 40000}}, shape.hd);
    std::vector<uint32_t> positions;
    for (const uint32_t length : lengths_up_to(40000)) positions.push_back(length - 1);
    for (const uint32_t splits : {1u, 7u, 132u, 264u, 512u}) {
      const DecodeCase c{shape, positions, std::vector<uint32_t>(positions.size(), 0), splits, 1.0f, splits};
      SCOPED_TRACE(describe(shape) + " splits " + std::to_string(splits));
      expect_close(c, cache, run_decode(c, cache));
    }
  }
}

TEST_F(Attention, DecodeReadsNothingBeyondTheLength) {
  // Every other cell of the cache is NaN.
  for (const AttentionShape& shape : {AttentionShape{8, 2, 512, 0}, AttentionShape{8, 2, 256, 0},
                                      AttentionShape{8, 2, 256, 512}, AttentionShape{4, 2, 32, 128}}) {
    for (const uint32_t length : lengths_up_to(2100)) {
      SCOPED_TRACE(describe(shape) + " length " + std::to_string(length));
      const TestCache cache = decode_cache(shape, length - 1, length);
      const uint32_t splits = attention_decode_splits(shape, 1, length, sm_count_);
      const DecodeCase c{shape, {length - 1}, {0}, splits, 1.0f, length};
      expect_close(c, cache, run_decode(c, cache));
    }
  }
}

TEST_F(Attention, DecodeWithEveryNumberOfSplits) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 512, 0}, AttentionShape{8, 2, 256, 512},
                                      AttentionShape{16, 1, 512, 0}, AttentionShape{4, 2, 64, 0}}) {
    const TestCache cache = decode_cache(shape, 1500, 3);
    for (uint32_t splits = 1; splits <= 50; ++splits) {
      SCOPED_TRACE(describe(shape) + " splits " + std::to_string(splits));
      const DecodeCase c{shape, {1500}, {0}, splits, 1.0f, 5};
      expect_close(c, cache, run_decode(c, cache));
    }
  }
}

TEST_F(Attention, DecodeHeadGroupsAndWidths) {
  for (const uint32_t group : {1u, 2u, 3u, 4u, 8u, 16u, 17u, 32u}) {
    for (const uint32_t hd : {16u, 32u, 64u, 112u, 128u, 208u, 256u, 272u, 512u}) {
      const AttentionShape shape{2 * group, 2, hd, 0};
      const TestCache cache = decode_cache(shape, 600, group);
      for (const uint32_t splits : {1u, 3u, 16u}) {
        SCOPED_TRACE(describe(shape) + " splits " + std::to_string(splits));
        const DecodeCase c{shape, {600}, {0}, splits, 1.0f, group * 31 + hd};
        expect_close(c, cache, run_decode(c, cache));
      }
    }
  }
}

TEST_F(Attention, DecodeRowsOfManySequencesInWrappedRings) {
  const AttentionShape shape{8, 2, 256, 512};
  std::vector<TestCache::Range> ranges;
  DecodeCase c{shape, {}, {}, 1, 1.0f, 7};
  for (uint32_t s = 0; s < 40; ++s) {
    const uint32_t position = s * s * 13 + s;  // up to 39 laps of the ring
    ranges.push_back({first_visible(shape, position), position + 1});
    c.positions.push_back(position);
    c.sequences.push_back(39 - s);
  }
  std::reverse(ranges.begin(), ranges.end());  // row r reads sequence 39 - r
  const TestCache cache(shape.Hkv, shape.hd, 512, ranges, 11);
  for (const uint32_t splits : {1u, 3u, 9u}) {
    c.splits = splits;
    expect_close(c, cache, run_decode(c, cache));
  }
}

TEST_F(Attention, DecodeWithScoresFarApart) {
  for (const uint32_t hd : {256u, 512u}) {
    const AttentionShape shape{8, 2, hd, 0};
    const TestCache cache = decode_cache(shape, 3000, hd);
    const DecodeCase c{shape, {3000}, {0}, attention_decode_splits(shape, 1, 3001, sm_count_), 10.0f, hd};
    expect_close(c, cache, run_decode(c, cache));
  }
}

TEST_F(Attention, DecodeGivesTheSameBitsEveryTime) {
  // Which blocks help to combine changes from run to run; the bits may not.
  for (const AttentionShape& shape : {AttentionShape{8, 2, 512, 0}, AttentionShape{8, 2, 256, 512}}) {
    const TestCache cache(shape.Hkv, shape.hd, cells_for(9000), {{0, 9000}}, 2);
    const DecodeCase c{shape, {8999, 700, 3, 4444}, {0, 0, 0, 0}, 40, 1.0f, 13};
    const DecodeRun first = run_decode(c, cache);
    expect_close(c, cache, first);
    for (const bool overlap : {false, true}) {
      if (overlap && !overlap_) continue;
      for (int i = 0; i < 10; ++i) {
        const DecodeRun again = run_decode(c, cache, 20, overlap);
        ASSERT_EQ(std::memcmp(first.out.data(), again.out.data(), first.out.size() * sizeof first.out[0]), 0);
      }
    }
  }
}

// ------------------------------------------------------------------------------------------- choices, without a GPU

TEST(AttentionChoice, RefusesShapesWithoutAKernel) {
  EXPECT_THROW(attention_tile_rows({8, 2, 24, 0}, kSmallCard), std::runtime_error);
  EXPECT_THROW(attention_tile_rows({8, 2, 528, 0}, kSmallCard), std::runtime_error);
  EXPECT_THROW(attention_tile_rows({8, 2, 0, 0}, kSmallCard), std::runtime_error);
  EXPECT_THROW(attention_tile_rows({7, 2, 256, 0}, kSmallCard), std::runtime_error);
  EXPECT_THROW(attention_tile_rows({66, 2, 256, 0}, kSmallCard), std::runtime_error);
  EXPECT_THROW(attention_tile_rows({8, 2, 256, 0}, 48 * 1024), std::runtime_error);
  EXPECT_NO_THROW(attention_tile_rows({64, 2, 512, 0}, kSmallCard));
}

TEST(AttentionChoice, TileRowsDoNotDependOnTheCard) {
  for (const uint32_t hd : {16u, 128u, 256u, 512u}) {
    for (const uint32_t group : {1u, 2u, 3u, 8u, 16u, 32u}) {
      const AttentionShape shape{group, 1, hd, 0};
      const uint32_t rows = attention_tile_rows(shape, kSmallCard);
      EXPECT_GE(rows, 2u);
      EXPECT_EQ(rows, attention_tile_rows(shape, 227 * 1024));
    }
  }
}

TEST(AttentionChoice, SplitsFillTheCardAndNoMore) {
  const AttentionShape global{8, 2, 512, 0}, sliding{8, 2, 256, 512};
  EXPECT_EQ(attention_decode_splits(global, 1, 1, 132), 1u);
  EXPECT_EQ(attention_decode_splits(global, 1, 32768, 132), 132u);
  EXPECT_EQ(attention_decode_splits(global, 64, 32768, 132), 2u);
  EXPECT_EQ(attention_decode_splits(global, 1000, 32768, 132), 1u);
  // Two tiles a block where there are few: eight, and nine where the window begins inside one.
  EXPECT_EQ(attention_decode_splits(sliding, 1, 512, 132), 4u);
  EXPECT_EQ(attention_decode_splits(sliding, 1, 100000, 132), 5u);
  uint32_t before = 1;
  for (uint32_t context = 1; context < 70000; context += 97) {
    const uint32_t splits = attention_decode_splits(global, 1, context, 132);
    EXPECT_GE(splits, before) << "scratch is planned for the longest context";
    before = splits;
  }
}

}  // namespace
}  // namespace carat::cuda
