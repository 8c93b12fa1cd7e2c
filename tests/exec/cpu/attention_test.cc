#include "exec/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/float16.h"
#include "exec/kv_rounding.h"
#include "kernel_tables.h"
#include "support/random.h"

namespace carat::exec::cpu {
namespace {

struct Shape {
  uint32_t H, Hkv, hd, window, context, chunk;
};

// One layer that owns its cache.
model::Config one_layer(const Shape& shape, bool sliding) {
  model::Config config;
  config.L = 1;
  config.n_kv = 1;
  config.W = shape.window;
  config.layers.push_back({.index = 0, .sliding = sliding, .H = shape.H, .Hkv = shape.Hkv, .hd = shape.hd});
  return config;
}

ExecutorOptions make_options(const Shape& shape, uint32_t sequences) {
  ExecutorOptions options;
  options.context = shape.context;
  options.sequences = sequences;
  options.chunk = shape.chunk;
  return options;
}

ExecutorOptions with_format(ExecutorOptions options, quant::Format format) {
  options.kv_format = format;
  return options;
}

// Sequences with random keys and values, kept twice: in the cache under test, and as they are for the naive answer.
class Problem {
 public:
  Problem(const KernelTable& kernels, const Shape& shape, bool sliding, quant::Format format, unsigned threads,
          uint32_t sequences = 1)
      : shape_(shape),
        config_(one_layer(shape, sliding)),
        options_(make_options(shape, sequences)),
        geometry_(config_, shape.context, shape.chunk),
        table_(config_, options_, geometry_, PagedSequences::pages_of_all(geometry_, sequences)),
        cache_(config_, geometry_, table_, with_format(options_, format), config_.L),
        pool_(threads),
        attention_(config_, kernels, pool_, cache_, options_),
        keys_(sequences),
        values_(sequences) {}

  // Appends `count` positions to a sequence and adds their rows to the pass.
  void append(uint32_t sequence, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const auto position = static_cast<uint32_t>(keys_[sequence].size());
      const Row row = {0, position, sequence, true};
      table_.begin({&row, 1});
      keys_[sequence].push_back(store(sequence, position, true));
      values_[sequence].push_back(store(sequence, position, false));
      table_.commit({&row, 1});
      rows_.push_back(row);
    }
  }

  // Runs rows [first, first + count) of what was appended, with the same queries whatever the split.
  std::vector<float> run(size_t first, size_t count) {
    const size_t width = size_t{shape_.H} * shape_.hd;
    std::vector<float> q, out(count * width);
    for (size_t r = first; r < first + count; ++r) {
      const auto query = query_of(rows_[r]);
      q.insert(q.end(), query.begin(), query.end());
    }
    attention_.run(config_.layers[0], std::span(rows_).subspan(first, count), q.data(), out.data());
    return out;
  }
  size_t rows() const { return rows_.size(); }
  void forget_rows() { rows_.clear(); }

  std::vector<double> expected(size_t row) const {
    const Row& at = rows_[row];
    const uint32_t group = shape_.H / shape_.Hkv;
    const auto q = query_of(at);
    std::vector<double> out(size_t{shape_.H} * shape_.hd);
    const uint32_t begin =
        config_.layers[0].sliding && at.position >= shape_.window ? at.position - shape_.window + 1 : 0;
    for (uint32_t head = 0; head < shape_.H; ++head) {
      const size_t kv = size_t{head / group} * shape_.hd;
      std::vector<double> scores;
      for (uint32_t p = begin; p <= at.position; ++p) {
        double score = 0.0;
        for (uint32_t j = 0; j < shape_.hd; ++j) {
          score += double{q[head * shape_.hd + j]} * keys_[at.sequence][p][kv + j];
        }
        scores.push_back(score);
      }
      const double peak = *std::max_element(scores.begin(), scores.end());
      double total = 0.0;
      for (double& score : scores) total += score = std::exp(score - peak);
      for (uint32_t p = begin; p <= at.position; ++p) {
        for (uint32_t j = 0; j < shape_.hd; ++j) {
          out[head * shape_.hd + j] += scores[p - begin] / total * values_[at.sequence][p][kv + j];
        }
      }
    }
    return out;
  }

 private:
  std::vector<float> query_of(const Row& row) const {
    return test::Random(1000 * row.sequence + row.position + 1).normals(size_t{shape_.H} * shape_.hd, 0.4f);
  }

  std::vector<float> store(uint32_t sequence, uint32_t position, bool key) {
    std::vector<float> vector =
        test::Random(7777 * sequence + 2 * position + key).normals(size_t{shape_.Hkv} * shape_.hd);
    for (uint32_t head = 0; head < shape_.Hkv; ++head) {
      std::byte* at = key ? cache_.key(0, sequence, head, position) : cache_.value(0, sequence, head, position);
      if (cache_.format() == quant::Format::kQ8_0) {
        for (uint32_t j = 0; j < shape_.hd; j += quant::kBlock, at += sizeof(quant::BlockQ8_0)) {
          float* values = &vector[head * shape_.hd + j];
          const quant::BlockQ8_0 block = round_q8_0(values);
          std::memcpy(at, &block, sizeof block);
          for (int e = 0; e < quant::kBlock; ++e)
            values[e] = half_to_float(block.d) * static_cast<float>(block.quants[e]);
        }
        continue;
      }
      for (uint32_t j = 0; j < shape_.hd; ++j) {
        float& value = vector[head * shape_.hd + j];
        if (cache_.format() == quant::Format::kF16) {
          const uint16_t half = float_to_half(value);
          std::memcpy(at + 2 * j, &half, 2);
          value = half_to_float(half);  // what the naive answer is computed from
        } else {
          std::memcpy(at + 4 * j, &value, 4);
        }
      }
    }
    return vector;
  }

  Shape shape_;
  model::Config config_;
  ExecutorOptions options_;
  model::KvPages geometry_;
  PagedSequences table_;
  KvCache cache_;
  ThreadPool pool_;
  Attention attention_;
  std::vector<std::vector<std::vector<float>>> keys_, values_;  // [sequence][position][Hkv * hd], since the beginning
  std::vector<Row> rows_;
};

class AttentionOn : public testing::TestWithParam<const KernelTable*> {
 protected:
  void expect_naive(Problem& problem, const std::string& what) {
    const std::vector<float> out = problem.run(0, problem.rows());
    for (size_t r = 0; r < problem.rows(); ++r) {
      const std::vector<double> expected = problem.expected(r);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(out[r * expected.size() + i], expected[i], 1e-5) << what << ", row " << r << ", value " << i;
      }
    }
  }
};

TEST_P(AttentionOn, EqualsTheNaiveOneForEveryHeadGroup) {
  for (const uint32_t group : {1u, 2u, 4u, 8u, 40u}) {
    for (const uint32_t hd : {16u, 24u, 96u, 256u}) {
      for (const bool sliding : {false, true}) {
        for (const auto format : {quant::Format::kF16, quant::Format::kF32, quant::Format::kQ8_0}) {
          if (format == quant::Format::kQ8_0 && hd % quant::kBlock != 0) continue;
          const Shape shape = {.H = 2 * group, .Hkv = 2, .hd = hd, .window = 40, .context = 128, .chunk = 50};
          Problem problem(*GetParam(), shape, sliding, format, 2);
          problem.append(0, 50);
          expect_naive(problem, fmt::format("group {}, hd {}, sliding {}", group, hd, sliding));
        }
      }
    }
  }
}

TEST_P(AttentionOn, ReadsARingThatHasWrappedManyTimes) {
  const Shape shape = {.H = 4, .Hkv = 1, .hd = 32, .window = 21, .context = 1000, .chunk = 10};
  Problem problem(*GetParam(), shape, true, quant::Format::kF16, 2);
  for (int pass = 0; pass < 30; ++pass) {
    problem.forget_rows();
    problem.append(0, pass % 3 == 0 ? 10 : 1);
    expect_naive(problem, fmt::format("pass {}", pass));
  }
}

TEST_P(AttentionOn, LongSequencesAreCutIntoSpansWithoutATrace) {
  // One row over 1,500 keys: several spans that workers share; with one thread a single worker takes all of them.
  const Shape shape = {.H = 4, .Hkv = 2, .hd = 32, .window = 700, .context = 2048, .chunk = 1500};
  for (const bool sliding : {false, true}) {
    Problem shared(*GetParam(), shape, sliding, quant::Format::kF16, 3);
    Problem alone(*GetParam(), shape, sliding, quant::Format::kF16, 1);
    shared.append(0, 1500);
    alone.append(0, 1500);
    const std::vector<float> whole = alone.run(0, 1500);
    const size_t width = size_t{shape.H} * shape.hd;
    for (const size_t row : {255u, 256u, 699u, 700u, 1023u, 1300u, 1499u}) {
      const std::vector<float> one = shared.run(row, 1);
      EXPECT_EQ(one, alone.run(row, 1));
      EXPECT_EQ(0, std::memcmp(one.data(), &whole[row * width], width * sizeof(float))) << "row " << row;
      const std::vector<double> expected = alone.expected(row);
      for (size_t i = 0; i < width; ++i) ASSERT_NEAR(one[i], expected[i], 1e-5) << "row " << row;
    }
  }
}

TEST_P(AttentionOn, RowsOfSeveralSequencesMix) {
  const Shape shape = {.H = 8, .Hkv = 2, .hd = 16, .window = 12, .context = 64, .chunk = 40};
  Problem problem(*GetParam(), shape, true, quant::Format::kF16, 2, 3);
  for (const uint32_t sequence : {0u, 1u, 0u, 2u, 1u, 1u, 0u, 2u}) problem.append(sequence, 1 + sequence * 2);
  expect_naive(problem, "mixed");
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionOn, testing::ValuesIn(tables()), table_name);

TEST(KvCacheFormats, OthersAreRefused) {
  const model::Config config = one_layer({.H = 1, .Hkv = 1, .hd = 32, .window = 8, .context = 8, .chunk = 4}, false);
  try {
    KvCache::bytes_per_value(config, quant::Format::kQ4_0);
    ADD_FAILURE() << "Q4_0 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("Q4_0"), std::string::npos);
  }
}

TEST(KvCacheFormats, RoundingToQ8IsToTheNearestLevel) {
  for (const float size : {1e-9f, 1e-4f, 1.0f, 20.0f}) {
    for (uint64_t seed = 1; seed < 200; ++seed) {
      const std::vector<float> values = test::Random(seed).normals(quant::kBlock, size);
      const quant::BlockQ8_0 block = round_q8_0(values.data());
      const float scale = half_to_float(block.d);
      float largest = 0.0f;
      for (const float value : values) largest = std::max(largest, std::fabs(value));
      for (int i = 0; i < quant::kBlock; ++i) {
        // Half a level; where the scale was rounded down, the largest value is cut at level 127; and a block may be
        // too small for any scale.
        const float cut = std::max(0.0f, largest - 127.0f * scale);
        EXPECT_LE(std::fabs(values[i] - scale * static_cast<float>(block.quants[i])),
                  scale == 0.0f ? largest : 0.501f * scale + cut);
      }
      EXPECT_LE(std::fabs(scale * 127.0f - largest), largest / 2048.0f + 0x1p-24f * 64.0f);
    }
  }
  const std::vector<float> zeros(quant::kBlock, 0.0f);
  const quant::BlockQ8_0 nothing = round_q8_0(zeros.data());
  EXPECT_EQ(nothing.d, 0);
  for (const int8_t level : nothing.quants) EXPECT_EQ(level, 0);
  const std::vector<float> bad(quant::kBlock, NAN);
  EXPECT_TRUE(std::isnan(half_to_float(round_q8_0(bad.data()).d)));
}

}  // namespace
}  // namespace carat::exec::cpu
