#pragma once

// Attention inputs for tests, and what the result must be: a reference in double precision over the values the kernels
// compute with: those of the fp16 cache, or of the q8_0 cache after expansion to fp16. All of it on the host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exec/cuda/kernels/attention/attention_shape.h"
#include "exec/kv_rounding.h"
#include "support/random.h"

namespace carat::cuda {

// Runs work(0) ... work(count - 1) on all cores.
inline void on_all_cores(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (size_t t = 1; t < std::min(cores, count); ++t) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
}

// Uniform values of deviation `scale`, rounded to fp16. Drawn from a table, because the conversion is slow on the host.
class RandomHalves {
 public:
  explicit RandomHalves(float scale) : table_(kSteps) {
    for (uint32_t i = 0; i < kSteps; ++i) {
      table_[i] = __float2half((static_cast<float>(2 * i + 1) / kSteps - 1.0f) * 1.7320508f * scale);
    }
  }

  void fill(uint64_t seed, __half* values, size_t count) const {
    test::Random random(seed);
    for (size_t i = 0; i < count;) {
      uint64_t bits = random.bits();
      for (int k = 0; k < 4 && i < count; ++k, bits >>= 16) values[i++] = table_[bits % kSteps];
    }
  }

 private:
  static constexpr uint32_t kSteps = 4096;
  std::vector<__half> table_;
};

enum class CacheType { kHalf, kQ8 };

// A cache whose sequences hold positions [first, end). Every other cell is NaN, as uninitialised memory may be; of a
// q8_0 cache that is the scale, and its int8 are as large as they can be.
struct HostCache {
  struct Range {
    uint32_t first, end;
  };
  // Keys or values, [sequence][Hkv][cells][hd].
  struct Contents {
    std::vector<float> values;   // what the kernels compute with
    std::vector<__half> halves;  // the cache itself; of a q8_0 cache the scales
    std::vector<int8_t> levels;  // of a q8_0 cache
  };

  uint32_t Hkv, hd, cells;
  CacheType type;
  Contents k, v;

  HostCache(uint32_t heads, uint32_t width, uint32_t cell_count, const std::vector<Range>& sequences, uint64_t seed,
            CacheType cache_type = CacheType::kHalf)
      : Hkv(heads), hd(width), cells(cell_count), type(cache_type) {
    fill(k, sequences, 2 * seed);
    fill(v, sequences, 2 * seed + 1);
  }

 private:
  void fill(Contents& to, const std::vector<Range>& sequences, uint64_t seed) const {
    __half_raw nan;
    nan.x = 0x7e00;
    const size_t count = sequences.size() * Hkv * cells * hd;
    std::vector<__half> halves(count, __half(nan));
    const bool quantised = type == CacheType::kQ8;
    to.levels.assign(quantised ? count : 0, 127);
    std::vector<__half> scales(quantised ? count / hd * kv_scale_columns(hd) : 0, __half(nan));
    to.values.assign(count, NAN);
    const RandomHalves random(1.0f);
    constexpr uint32_t kAtOnce = 256;
    for (size_t head = 0; head < sequences.size() * Hkv; ++head) {
      const Range& range = sequences[head / Hkv];
      on_all_cores((range.end - range.first + kAtOnce - 1) / kAtOnce, [&](size_t part) {
        const uint32_t first = range.first + static_cast<uint32_t>(part) * kAtOnce;
        for (uint32_t p = first; p < std::min(first + kAtOnce, range.end); ++p) {
          const size_t row = head * cells + p % cells;
          random.fill(seed + row * 0x9e3779b97f4a7c15u, &halves[row * hd], hd);
          for (size_t i = row * hd; i < (row + 1) * hd; ++i) to.values[i] = __half2float(halves[i]);
          if (quantised) quantise(&to.values[row * hd], &to.levels[row * hd], &scales[row * kv_scale_columns(hd)]);
        }
      });
    }
    to.halves = quantised ? std::move(scales) : std::move(halves);
  }

  // Rounds a row, and replaces its values by what the kernels make of it: level times scale, rounded to fp16.
  void quantise(float* values, int8_t* levels, __half* scales) const {
    std::fill_n(scales, kv_scale_columns(hd), __float2half(0.0f));
    for (uint32_t i = 0; i < hd; i += kKvScaleBlock) {
      const quant::BlockQ8_0 block = exec::round_q8_0(values + i);
      __half_raw scale;
      scale.x = block.d;
      scales[i / kKvScaleBlock] = __half(scale);
      for (uint32_t e = 0; e < kKvScaleBlock; ++e) {
        levels[i + e] = block.quants[e];
        values[i + e] = half_to_float(float_to_half(half_to_float(block.d) * static_cast<float>(block.quants[e])));
      }
    }
  }
};

// One query: hd values of one head at one position of a sequence.
struct TestQuery {
  const __half* q;
  uint32_t head, position, sequence;
};

inline double dot(const float* a, const float* b, uint32_t count) {
  double sums[8] = {};  // independent, so that the compiler can use vectors; count is a multiple of 16
  for (uint32_t i = 0; i < count; i += 8) {
    for (uint32_t j = 0; j < 8; ++j) sums[j] += double{a[i + j]} * double{b[i + j]};
  }
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

inline std::vector<double> reference_attention(const AttentionShape& shape, const HostCache& cache,
                                               const TestQuery& query) {
  const uint32_t kv_head = query.head / (shape.H / shape.Hkv), end = query.position + 1;
  const uint32_t first = shape.window != 0 && end > shape.window ? end - shape.window : 0;
  const size_t base = (size_t{query.sequence} * shape.Hkv + kv_head) * cache.cells;
  const auto offset = [&](uint32_t p) { return (base + p % cache.cells) * shape.hd; };
  std::vector<float> q(shape.hd);
  for (uint32_t i = 0; i < shape.hd; ++i) q[i] = __half2float(query.q[i]);
  std::vector<double> scores(end - first);
  for (uint32_t p = first; p < end; ++p) scores[p - first] = dot(q.data(), &cache.k.values[offset(p)], shape.hd);
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> out(shape.hd, 0.0);
  double sum = 0.0;
  for (uint32_t p = first; p < end; ++p) {
    const double weight = std::exp(scores[p - first] - largest);
    const float* value = &cache.v.values[offset(p)];
    sum += weight;
    for (uint32_t i = 0; i < shape.hd; ++i) out[i] += weight * double{value[i]};
  }
  for (double& x : out) x /= sum;
  return out;
}

// A query whose result, at `offset` of the outputs, is compared.
struct ComparedQuery {
  TestQuery query;
  size_t offset;
  std::vector<double> reference;
};

inline void add_references(const AttentionShape& shape, const HostCache& cache, std::vector<ComparedQuery>& queries) {
  on_all_cores(queries.size(),
               [&](size_t i) { queries[i].reference = reference_attention(shape, cache, queries[i].query); });
}

// Distance of computed rows from the reference: ||out - ref|| / ||ref|| over everything added, and the largest
// difference of one element in units of that element's allowance.
class Distance {
 public:
  // Allowance: `relative` of the element plus `absolute` of the row's root mean square.
  Distance(double relative, double absolute) : relative_(relative), absolute_(absolute) {}

  void add(const std::vector<double>& reference, const std::function<double(size_t)>& computed) {
    double square = 0.0;
    for (const double r : reference) square += r * r;
    const double rms = std::sqrt(square / static_cast<double>(reference.size()));
    for (size_t i = 0; i < reference.size(); ++i) {
      const double error = std::abs(computed(i) - reference[i]);
      const double excess = error / (relative_ * std::abs(reference[i]) + absolute_ * rms);
      if (!(excess <= worst_)) worst_ = std::isnan(excess) ? INFINITY : excess;
      errors_ += error * error;
    }
    squares_ += square;
  }
  // NaN where any computed element was.
  double norm() const { return std::sqrt(errors_ / squares_); }
  double worst() const { return worst_; }

 private:
  double relative_, absolute_;
  double errors_ = 0.0, squares_ = 0.0, worst_ = 0.0;
};

inline std::string describe(const AttentionShape& shape) {
  return "H " + std::to_string(shape.H) + " Hkv " + std::to_string(shape.Hkv) + " hd " + std::to_string(shape.hd) +
         " window " + std::to_string(shape.window);
}

// First position that a query at `position` or later can see.
inline uint32_t first_visible(const AttentionShape& shape, uint32_t position) {
  return shape.window != 0 && position + 1 > shape.window ? position + 1 - shape.window : 0;
}

inline uint32_t cells_for(uint32_t positions) { return (positions + 63) / 64 * 64; }

inline float query_scale(uint32_t hd) { return 3.0f / std::sqrt(static_cast<float>(hd)); }  // scores of deviation 3

// ---------------------------------------------------------------------------------------------------------- prompts

struct Prompt {
  uint32_t prior, count;  // positions prior ... prior + count of one sequence
};

struct PrefillCase {
  AttentionShape shape;
  std::vector<Prompt> prompts;  // one sequence each, rows in order
  uint32_t cells = 0;           // 0: a ring as short as these prompts allow
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
  tiles.resize(tiles.size() + c.empty_tiles);
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

// The queries of a case; results are still missing.
inline PrefillRun prefill_run(const PrefillCase& c) {
  uint32_t rows = 0;
  for (const Prompt& prompt : c.prompts) rows += prompt.count;
  PrefillRun run;
  run.q.resize(size_t{rows} * c.shape.H * c.shape.hd);
  RandomHalves(query_scale(c.shape.hd) * c.scale).fill(c.seed + 5, run.q.data(), run.q.size());
  return run;
}

// The cache that the case's prompts see; Cache: HostCache, or one that is on the device, too.
template <typename Cache>
Cache cache_for(const PrefillCase& c) {
  std::vector<HostCache::Range> ranges;
  uint32_t most = 0;
  for (const Prompt& prompt : c.prompts) {
    const uint32_t first = first_visible(c.shape, prompt.prior), end = prompt.prior + prompt.count;
    ranges.push_back({first, end});
    most = std::max(most, end - first);
  }
  return Cache(c.shape.Hkv, c.shape.hd, c.cells != 0 ? c.cells : cells_for(most), ranges, c.seed, c.cache);
}

inline void expect_close(const PrefillCase& c, const HostCache& cache, const PrefillRun& run) {
  for (size_t i = 0; i < run.out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(__bfloat162float(run.out[i]))) << "element " << i;
  }
  test::Random random(c.seed + 3);
  std::vector<ComparedQuery> samples;
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
  add_references(c.shape, cache, samples);
  // The bf16 rounding of the output is at most 2^-8 of an element and 1.65e-3 of the norm, give or take a fifth where
  // few elements are compared. Before it, probabilities rounded to fp16 err by at most 2^-11 each, at random.
  Distance distance(1.0 / 256, 2e-3);
  for (const ComparedQuery& sample : samples) {
    distance.add(sample.reference, [&](size_t i) { return double{__bfloat162float(run.out[sample.offset + i])}; });
  }
  EXPECT_LT(distance.norm(), 2.5e-3);
  EXPECT_LT(distance.worst(), 1.0);
}

}  // namespace carat::cuda
