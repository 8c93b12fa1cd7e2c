#pragma once

// Runs of the attention kernels on test data and their comparison with the reference; for tests of every kind of cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "exec/cuda/attention_problem.h"
#include "exec/cuda/device/stream.h"
#include "exec/cuda/kernels/attention_wgmma.h"

namespace carat::cuda {

inline constexpr uint32_t kSmallCard = 99 * 1024;

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

inline std::string describe(const AttentionShape& shape) {
  return "H " + std::to_string(shape.H) + " Hkv " + std::to_string(shape.Hkv) + " hd " + std::to_string(shape.hd) +
         " window " + std::to_string(shape.window);
}

// First position that a query at `position` or later can see.
inline uint32_t first_visible(const AttentionShape& shape, uint32_t position) {
  return shape.window != 0 && position + 1 > shape.window ? position + 1 - shape.window : 0;
}

inline uint32_t slots_for(uint32_t positions) { return (positions + 63) / 64 * 64; }

inline float query_scale(uint32_t hd) { return 3.0f / std::sqrt(static_cast<float>(hd)); }  // scores of deviation 3

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
  CacheType cache = CacheType::kHalf;
  bool warpgroups = false;   // by attention_prefill_wgmma
  uint32_t empty_tiles = 0;  // after the others
};

// The tile list of the prompts: full tiles in order, or pieces of random sizes in random order.
inline std::vector<Segment> cut(const PrefillCase& c, uint32_t tile_rows) {
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
inline std::vector<uint32_t> sample_rows(uint32_t count, test::Random& random) {
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

inline PrefillRun run_prefill(const PrefillCase& c, const TestCache& cache) {
  uint32_t rows = 0;
  for (const Prompt& prompt : c.prompts) rows += prompt.count;
  PrefillRun run;
  run.q.resize(size_t{rows} * c.shape.H * c.shape.hd);
  RandomHalves(query_scale(c.shape.hd) * c.scale).fill(c.seed + 5, run.q.data(), run.q.size());
  const DeviceArray<__half> q = to_device(run.q);
  std::vector<Segment> list = cut(c, attention_tile_rows(c.shape, c.shared_memory));
  list.resize(list.size() + c.empty_tiles);
  const DeviceArray<Segment> tiles = to_device(list);
  const DeviceArray<__nv_bfloat16> out(run.q.size(), "test output");
  check(cudaMemset(out.data(), 0xff, out.bytes()), "cudaMemset");  // NaN: an element not written shows
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const auto count = static_cast<uint32_t>(tiles.size());
  if (c.warpgroups) {
    attention_prefill_wgmma({c.shape, q.data(), cache.view(), tiles.data(), count, out.data()}, {});
  } else {
    attention_prefill(c.shape, q.data(), cache.view(), tiles.data(), count, out.data(), c.shared_memory, {});
  }
  check(cudaDeviceSynchronize(), "attention_prefill");
  run.out = to_host(out);
  return run;
}

inline TestCache prefill_cache(const PrefillCase& c) {
  std::vector<TestCache::Range> ranges;
  uint32_t most = 0;
  for (const Prompt& prompt : c.prompts) {
    const uint32_t first = first_visible(c.shape, prompt.prior), end = prompt.prior + prompt.count;
    ranges.push_back({first, end});
    most = std::max(most, end - first);
  }
  return TestCache(c.shape.Hkv, c.shape.hd, c.slots != 0 ? c.slots : slots_for(most), ranges, c.seed, c.cache);
}

inline void expect_close(const PrefillCase& c, const TestCache& cache, const PrefillRun& run) {
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

inline void check_prefill(const PrefillCase& c) {
  const TestCache cache = prefill_cache(c);
  expect_close(c, cache, run_prefill(c, cache));
}

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
inline DecodeRun run_decode(const DecodeCase& c, const TestCache& cache, int repeats = 1, bool overlap = false) {
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
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const Stream stream;
  check(cudaDeviceSynchronize(), "test input");
  for (int i = 0; i < repeats; ++i) {
    attention_decode(c.shape, q.data(), cache.view(), positions.data(), sequences.data(), rows, out.data(), c.splits,
                     partial.data(), counters.data(), {stream.get(), overlap});
  }
  const DeviceArray<__nv_bfloat16> rounded(run.q.size(), "test output");
  attention_decode(c.shape, q.data(), cache.view(), positions.data(), sequences.data(), rows, rounded.data(), c.splits,
                   partial.data(), counters.data(), {stream.get(), overlap});
  stream.synchronise();
  run.out = to_host(out);
  const std::vector<__nv_bfloat16> found = to_host(rounded);
  for (size_t i = 0; i < found.size(); ++i) {
    if (__bfloat162float(found[i]) == __bfloat162float(__float2bfloat16_rn(run.out[i]))) continue;
    ADD_FAILURE() << "value " << i << " as bf16: " << __bfloat162float(found[i]) << " instead of " << run.out[i];
    break;
  }
  for (const uint32_t counter : to_host(counters)) EXPECT_EQ(counter, 0u) << "counters must be left at zero";
  return run;
}

inline void expect_close(const DecodeCase& c, const TestCache& cache, const DecodeRun& run) {
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
inline TestCache decode_cache(const AttentionShape& shape, uint32_t position, uint64_t seed,
                              CacheType type = CacheType::kHalf) {
  const uint32_t first = first_visible(shape, position);
  return TestCache(shape.Hkv, shape.hd, slots_for(position + 1 - first), {{first, position + 1}}, seed, type);
}

// Lengths around powers of two, up to `most`, and `most` itself.
inline std::vector<uint32_t> lengths_up_to(uint32_t most) {
  std::vector<uint32_t> lengths = {1, 2, 3};
  for (uint32_t power = 8; power <= most; power *= 2) {
    for (const uint32_t length : {power - 1, power, power + 1}) lengths.push_back(length);
  }
  std::erase_if(lengths, [&](uint32_t length) { return length > most; });
  lengths.push_back(most);
  return lengths;
}

}  // namespace carat::cuda
