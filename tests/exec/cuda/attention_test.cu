#include "exec/cuda/kernels/attention.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "exec/cuda/attention_problem.h"
#include "exec/cuda/device/stream.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kSmallCard = 99 * 1024;

class Attention : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "skipped: no GPU";
    int value = 0;
    check(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "cudaDeviceGetAttribute");
    shared_memory_ = static_cast<uint32_t>(value);
    check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    sm_count_ = static_cast<uint32_t>(value);
    check(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
    overlap_ = value >= 9;
  }

  uint32_t shared_memory_ = 0, sm_count_ = 0;
  bool overlap_ = false;  // the card supports programmatic dependent launch
};

std::string describe(const AttentionShape& shape) {
  return "H " + std::to_string(shape.H) + " Hkv " + std::to_string(shape.Hkv) + " hd " + std::to_string(shape.hd) +
         " window " + std::to_string(shape.window);
}

// First position that a query at `position` or later can see.
uint32_t first_visible(const AttentionShape& shape, uint32_t position) {
  return shape.window != 0 && position + 1 > shape.window ? position + 1 - shape.window : 0;
}

uint32_t slots_for(uint32_t positions) { return (positions + 63) / 64 * 64; }

float query_scale(uint32_t hd) { return 3.0f / std::sqrt(static_cast<float>(hd)); }  // scores of deviation 3

// ---------------------------------------------------------------------------------------------------------- prompts

struct Prompt {
  uint32_t prior, count;  // positions prior ... prior + count of one sequence
};

struct PrefillCase {
  AttentionShape shape;
  std::vector<Prompt> prompts;  // one sequence each, rows in order
  uint32_t slots = 0;           // 0: a ring as short as these prompts allow
  uint32_t shared_memory = 0;
  bool ragged_tiles = false;  // tiles of random sizes instead of full ones
  float scale = 1.0f;         // of the scores
  uint64_t seed = 1;
};

// The tile list of the prompts: full tiles in order, or pieces of random sizes in random order.
std::vector<Segment> cut(const PrefillCase& c, uint32_t tile_rows) {
  test::Random random(c.seed + 17);
  std::vector<Segment> tiles;
  uint32_t row = 0;
  for (uint32_t s = 0; s < c.prompts.size(); ++s) {
    for (uint32_t i = 0; i < c.prompts[s].count;) {
      const uint32_t most = std::min(tile_rows, c.prompts[s].count - i);
      const uint32_t count = c.ragged_tiles ? 1 + static_cast<uint32_t>(random.below(most)) : most;
      tiles.push_back({row + i, count, c.prompts[s].prior + i, s});
      i += count;
    }
    row += c.prompts[s].count;
  }
  if (c.ragged_tiles) {
    for (size_t i = tiles.size(); i > 1; --i) std::swap(tiles[i - 1], tiles[random.below(i)]);
  }
  return tiles;
}

// Rows whose result is compared with the reference: the first, the last, those at tile edges and some between.
std::vector<uint32_t> sample_rows(uint32_t count, test::Random& random) {
  std::vector<uint32_t> rows = {0, count - 1, count / 2};
  for (const uint32_t edge : {15u, 16u, 31u, 32u, 63u, 64u, 127u, 128u}) rows.push_back(edge);
  for (int i = 0; i < 5; ++i) rows.push_back(static_cast<uint32_t>(random.below(count)));
  std::erase_if(rows, [&](uint32_t r) { return r >= count; });
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

struct PrefillRun {
  std::vector<__half> q;
  std::vector<__nv_bfloat16> out;
};

PrefillRun run_prefill(const PrefillCase& c, const TestCache& cache) {
  uint32_t rows = 0;
  for (const Prompt& prompt : c.prompts) rows += prompt.count;
  PrefillRun run;
  run.q.resize(size_t{rows} * c.shape.H * c.shape.hd);
  RandomHalves(query_scale(c.shape.hd) * c.scale).fill(c.seed + 5, run.q.data(), run.q.size());
  const DeviceArray<__half> q = to_device(run.q);
  const DeviceArray<Segment> tiles = to_device(cut(c, attention_tile_rows(c.shape, c.shared_memory)));
  const DeviceArray<__nv_bfloat16> out(run.q.size(), "test output");
  check(cudaMemset(out.data(), 0xff, out.bytes()), "cudaMemset");  // NaN: an element not written shows
  const auto count = static_cast<uint32_t>(tiles.size());
  attention_prefill(c.shape, q.data(), cache.view(), tiles.data(), count, out.data(), c.shared_memory, {});
  check(cudaDeviceSynchronize(), "attention_prefill");
  run.out = to_host(out);
  return run;
}

TestCache prefill_cache(const PrefillCase& c) {
  std::vector<TestCache::Range> ranges;
  uint32_t most = 0;
  for (const Prompt& prompt : c.prompts) {
    const uint32_t first = first_visible(c.shape, prompt.prior), end = prompt.prior + prompt.count;
    ranges.push_back({first, end});
    most = std::max(most, end - first);
  }
  return TestCache(c.shape.Hkv, c.shape.hd, c.slots != 0 ? c.slots : slots_for(most), ranges, c.seed);
}

void expect_close(const PrefillCase& c, const TestCache& cache, const PrefillRun& run) {
  for (size_t i = 0; i < run.out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(__bfloat162float(run.out[i]))) << "element " << i;
  }
  struct Sample {
    TestQuery query;
    size_t offset;
    std::vector<double> reference;
  };
  test::Random random(c.seed + 3);
  std::vector<Sample> samples;
  size_t row = 0;
  for (uint32_t s = 0; s < c.prompts.size(); ++s) {
    for (const uint32_t i : sample_rows(c.prompts[s].count, random)) {
      const auto head = static_cast<uint32_t>(random.below(c.shape.H));
      for (const uint32_t h : {head, (head + c.shape.H / 2 + 1) % c.shape.H}) {
        const size_t offset = ((row + i) * c.shape.H + h) * c.shape.hd;
        samples.push_back({{&run.q[offset], h, c.prompts[s].prior + i, s}, offset, {}});
      }
    }
    row += c.prompts[s].count;
  }
  on_all_cores(samples.size(),
               [&](size_t i) { samples[i].reference = reference_attention(c.shape, cache, samples[i].query); });
  // The bf16 rounding of the output is at most 2^-8 of an element and 1.65e-3 of the norm, give or take a fifth where
  // few elements are compared. Before it, probabilities rounded to fp16 err by at most 2^-11 each, at random.
  Distance distance(1.0 / 256, 2e-3);
  for (const Sample& sample : samples) {
    distance.add(sample.reference, [&](size_t i) { return double{__bfloat162float(run.out[sample.offset + i])}; });
  }
  EXPECT_LT(distance.norm(), 2.5e-3);
  EXPECT_LT(distance.worst(), 1.0);
}

void check_prefill(const PrefillCase& c) {
  const TestCache cache = prefill_cache(c);
  expect_close(c, cache, run_prefill(c, cache));
}

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
                         [](const auto& info) {
                           return "hd" + std::to_string(info.param.hd) + "_window" + std::to_string(info.param.window);
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
    for (const uint32_t slots : {320u, 384u}) {
      // 128 + 190 positions are alive: the ring is just large enough, and its start falls anywhere in a tile.
      for (const uint32_t prior : {317u, 5000u, 5001u, 7777u}) {
        const AttentionShape shape{8, 2, hd, 128};
        SCOPED_TRACE(describe(shape) + " slots " + std::to_string(slots) + " prior " + std::to_string(prior));
        check_prefill({shape, {{prior, 190}}, slots, shared_memory_, false, 1.0f, prior + slots});
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

struct DecodeCase {
  AttentionShape shape;
  std::vector<uint32_t> positions;  // one per row
  std::vector<uint32_t> sequences;
  uint32_t splits = 1;
  float scale = 1.0f;
  uint64_t seed = 1;
};

struct DecodeRun {
  std::vector<__half> q;
  std::vector<float> out;
};

// Runs the case `repeats` times in a row on one set of counters; the result is that of the last run.
DecodeRun run_decode(const DecodeCase& c, const TestCache& cache, int repeats = 1, bool overlap = false) {
  const auto rows = static_cast<uint32_t>(c.positions.size());
  DecodeRun run;
  run.q.resize(size_t{rows} * c.shape.H * c.shape.hd);
  RandomHalves(query_scale(c.shape.hd) * c.scale).fill(c.seed + 5, run.q.data(), run.q.size());
  const DeviceArray<__half> q = to_device(run.q);
  const DeviceArray<uint32_t> positions = to_device(c.positions), sequences = to_device(c.sequences);
  const DeviceArray<uint32_t> counters = to_device(std::vector<uint32_t>(rows * c.shape.Hkv, 0));
  const DeviceArray<float> out(run.q.size(), "test output");
  const DeviceArray<float> partial(attention_decode_scratch(c.shape, rows, c.splits), "test scratch");
  check(cudaMemset(partial.data(), 0xff, partial.bytes()), "cudaMemset");
  check(cudaMemset(out.data(), 0xff, out.bytes()), "cudaMemset");
  const Stream stream;
  check(cudaDeviceSynchronize(), "test input");
  for (int i = 0; i < repeats; ++i) {
    attention_decode(c.shape, q.data(), cache.view(), positions.data(), sequences.data(), rows, out.data(), c.splits,
                     partial.data(), counters.data(), {stream.get(), overlap});
  }
  stream.synchronise();
  run.out = to_host(out);
  for (const uint32_t counter : to_host(counters)) EXPECT_EQ(counter, 0u) << "counters must be left at zero";
  return run;
}

void expect_close(const DecodeCase& c, const TestCache& cache, const DecodeRun& run) {
  struct Sample {
    TestQuery query;
    size_t offset;
    std::vector<double> reference;
  };
  test::Random random(c.seed + 3);
  std::vector<Sample> samples;
  for (size_t row = 0; row < c.positions.size(); ++row) {
    const auto head = static_cast<uint32_t>(random.below(c.shape.H));
    for (const uint32_t h : {head, (head + c.shape.H / 2 + 1) % c.shape.H}) {
      const size_t offset = (row * c.shape.H + h) * c.shape.hd;
      samples.push_back({{&run.q[offset], h, c.positions[row], c.sequences[row]}, offset, {}});
    }
  }
  on_all_cores(samples.size(),
               [&](size_t i) { samples[i].reference = reference_attention(c.shape, cache, samples[i].query); });
  // Probabilities are rounded to fp16: 2^-11 each at most, at random; the rest is fp32.
  Distance distance(1.0 / 1024, 2e-3);
  for (const Sample& sample : samples) {
    distance.add(sample.reference, [&](size_t i) { return double{run.out[sample.offset + i]}; });
  }
  for (const float x : run.out) ASSERT_TRUE(std::isfinite(x));
  EXPECT_LT(distance.norm(), 5e-4);
  EXPECT_LT(distance.worst(), 1.0);
}

// A cache of one sequence that holds exactly what a query at `position` sees.
TestCache decode_cache(const AttentionShape& shape, uint32_t position, uint64_t seed) {
  const uint32_t first = first_visible(shape, position);
  return TestCache(shape.Hkv, shape.hd, slots_for(position + 1 - first), {{first, position + 1}}, seed);
}

// Lengths around powers of two, up to `most`, and `most` itself.
std::vector<uint32_t> lengths_up_to(uint32_t most) {
  std::vector<uint32_t> lengths = {1, 2, 3};
  for (uint32_t power = 8; power <= most; power *= 2) {
    for (const uint32_t length : {power - 1, power, power + 1}) lengths.push_back(length);
  }
  std::erase_if(lengths, [&](uint32_t length) { return length > most; });
  lengths.push_back(most);
  return lengths;
}

TEST_F(Attention, DecodeAtEveryLength) {
  // Rows of one long sequence: each sees its own length.
  for (const AttentionShape& shape : {AttentionShape{4, 1, 512, 0}, AttentionShape{4, 1, 256, 0}}) {
    const TestCache cache(shape.Hkv, shape.hd, slots_for(40000), {{0, 40000}}, shape.hd);
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
  // Every other slot of the cache is NaN.
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
    const TestCache cache(shape.Hkv, shape.hd, slots_for(9000), {{0, 9000}}, 2);
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
  EXPECT_EQ(attention_decode_splits(sliding, 1, 512, 132), 8u);
  EXPECT_EQ(attention_decode_splits(sliding, 1, 100000, 132), 9u);
  uint32_t before = 1;
  for (uint32_t context = 1; context < 70000; context += 97) {
    const uint32_t splits = attention_decode_splits(global, 1, context, 132);
    EXPECT_GE(splits, before) << "scratch is planned for the longest context";
    before = splits;
  }
}

}  // namespace
}  // namespace carat::cuda
