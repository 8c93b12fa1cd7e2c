#pragma once

// Runs of the attention kernels on test data and their comparison with the reference; for tests of every kind of cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "exec/cuda/device/stream.h"
#include "exec/cuda/kernels/attention/attention_problem.h"
#include "exec/cuda/kernels/attention/hopper/attention_wgmma.h"

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

inline PrefillRun run_prefill(const PrefillCase& c, const TestCache& cache) {
  PrefillRun run = prefill_run(c);
  const DeviceArray<__half> q = to_device(run.q);
  const DeviceArray<Segment> tiles = to_device(
      cut(c, c.warpgroups ? warpgroup_attention_tile_rows(c.shape) : attention_tile_rows(c.shape, c.shared_memory)));
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

inline TestCache prefill_cache(const PrefillCase& c) { return cache_for<TestCache>(c); }

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
  test::Random random(c.seed + 3);
  std::vector<ComparedQuery> samples;
  for (size_t row = 0; row < c.positions.size(); ++row) {
    const auto head = static_cast<uint32_t>(random.below(c.shape.H));
    for (const uint32_t h : {head, (head + c.shape.H / 2 + 1) % c.shape.H}) {
      const size_t offset = (row * c.shape.H + h) * c.shape.hd;
      samples.push_back({{&run.q[offset], h, c.positions[row], c.sequences[row]}, offset, {}});
    }
  }
  add_references(c.shape, cache, samples);
  // Probabilities are rounded to fp16: 2^-11 each at most, at random; the rest is fp32.
  Distance distance(1.0 / 1024, 2e-3);
  for (const ComparedQuery& sample : samples) {
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
  return TestCache(shape.Hkv, shape.hd, cells_for(position + 1 - first), {{first, position + 1}}, seed, type);
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
