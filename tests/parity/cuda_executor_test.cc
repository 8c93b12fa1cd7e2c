// The CUDA executor against the reference executor on random models of all five kinds and every weight format, and
// against itself: however rows are cut into passes, a row's logits stay the same within rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "exec/cuda/cuda_executor.h"
#include "exec/reference/reference_executor.h"
#include "parity/logit_error.h"
#include "support/executor_runs.h"
#include "support/tiny_model.h"

namespace carat::exec {
namespace {

using quant::Format;
using test::batch_tolerance;
using test::narrow_tolerance;
using test::relative_error;
using test::TinyKind;
using test::wide_tolerance;

std::vector<int32_t> some_tokens(size_t count, uint32_t V, uint32_t seed) {
  std::vector<int32_t> tokens;
  uint64_t state = seed * 7919u + 17u;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    tokens.push_back(static_cast<int32_t>((state >> 33) % V));
  }
  return tokens;
}

ExecutorOptions options_for(uint32_t chunk, const std::string& kernels = "") {
  ExecutorOptions options;
  options.context = 384;
  options.sequences = 3;
  options.chunk = chunk;
  options.outputs = 128;
  options.kernels = KernelChoices::parse(kernels);
  return options;
}

class CudaExecutorTest : public testing::TestWithParam<TinyKind> {
 protected:
  void SetUp() override {
    std::string why;
    if (!cuda_available(&why)) GTEST_SKIP() << "skipped: no GPU (" << why << ")";
  }
  test::Logits run(const std::shared_ptr<const model::Model>& model, const std::vector<int32_t>& tokens, uint32_t chunk,
                   const std::string& kernels = "", bool shortcut = true) const {
    ExecutorOptions options = options_for(128, kernels);
    options.kv_share_shortcut = shortcut;
    const auto executor = make_cuda_executor(model, options);
    return test::feed(*executor, 0, tokens, chunk, 0);
  }
};

TEST_P(CudaExecutorTest, EveryFormatIsCloseToTheReference) {
  struct Case {
    Format format;
    uint32_t widths;
  };
  for (const Case& c :
       {Case{Format::kF32, 16}, Case{Format::kF16, 32}, Case{Format::kBF16, 32}, Case{Format::kQ8_0, 32},
        Case{Format::kQ4_0, 32}, Case{Format::kQ5_0, 32}, Case{Format::kQ4_1, 32}, Case{Format::kQ5_1, 32},
        Case{Format::kQ4_K, 256}, Case{Format::kQ5_K, 256}, Case{Format::kQ6_K, 256}}) {
    const auto model = test::tiny_model(GetParam(), c.widths, c.format);
    const auto tokens = some_tokens(90, model->config().V, 3);
    ExecutorOptions options = options_for(128);
    const auto reference = make_reference_executor(model, options);
    const test::Logits expected = test::feed(*reference, 0, tokens, 128, 0);
    // Rows one by one, three at a time by the matrix-vector kernels, five at a time batched, and all at once.
    for (const uint32_t chunk : {90u, 1u, 3u, 5u}) {
      const double error = relative_error(run(model, tokens, chunk, chunk == 3 ? "batch=gemm" : ""), expected);
      std::printf("%s %s chunk %u: relative error %.2e\n", std::string(test::tiny_name(GetParam())).c_str(),
                  std::string(quant::info(c.format).name).c_str(), chunk, error);
      const double tolerance = chunk > 64  ? wide_tolerance(GetParam())
                               : chunk > 4 ? batch_tolerance(GetParam())
                                           : narrow_tolerance(GetParam());
      EXPECT_LT(error, tolerance) << quant::info(c.format).name << " chunk " << chunk;
    }
  }
}

// The same products from quantised weights and activations: exact weights, and outputs in bf16 as before.
TEST_P(CudaExecutorTest, IntegerProductsAreCloseToTheReference) {
  struct Case {
    Format format;
    uint32_t widths;
  };
  for (const Case& c : {Case{Format::kQ8_0, 32}, Case{Format::kQ4_0, 32}, Case{Format::kQ5_0, 32},
                        Case{Format::kQ4_K, 256}, Case{Format::kQ5_K, 256}, Case{Format::kQ6_K, 256}}) {
    const auto model = test::tiny_model(GetParam(), c.widths, c.format);
    const auto tokens = some_tokens(90, model->config().V, 3);
    const auto reference = make_reference_executor(model, options_for(128));
    const test::Logits expected = test::feed(*reference, 0, tokens, 128, 0);
    std::map<uint32_t, std::set<double>> errors;  // by chunk
    // batch=gemm: 33 rows that all want logits would run as a batched decode step otherwise.
    for (const std::string kernels : {"gemm=mmq,batch=gemm", "gemm=mmq,activations=int8,batch=gemm"}) {
      // 8-bit activations are coarser than bf16, and random weights magnify that.
      const double tolerance = (kernels == "gemm=mmq,batch=gemm" ? 1.0 : 2.0) * wide_tolerance(GetParam());
      for (const uint32_t chunk : {90u, 33u}) {
        const double error = relative_error(run(model, tokens, chunk, kernels), expected);
        std::printf("%s %s chunk %u %s: relative error %.2e\n", std::string(test::tiny_name(GetParam())).c_str(),
                    std::string(quant::info(c.format).name).c_str(), chunk, kernels.c_str(), error);
        EXPECT_LT(error, tolerance) << quant::info(c.format).name << " " << kernels;
        errors[chunk].insert(error);
      }
    }
    // Ways that round differently never agree to the last bit: the same error means that one was not taken.
    for (const auto& [chunk, found] : errors) EXPECT_EQ(found.size(), 2u) << "chunk " << chunk;
  }
}

// Gemma's activations are large where no norm has been yet: every way holds what fp16 could not.
TEST_P(CudaExecutorTest, ValuesBeyondFp16AreHeld) {
  for (const Format format : {Format::kBF16, Format::kQ8_0, Format::kQ4_0}) {
    const auto model = test::tiny_model_of_large_values(GetParam(), 32, format);
    const auto tokens = some_tokens(90, model->config().V, 3);
    const auto reference = make_reference_executor(model, options_for(128));
    const test::Logits expected = test::feed(*reference, 0, tokens, 128, 0);
    struct Way {
      uint32_t chunk;
      std::string kernels;
      double tolerance;
    };
    std::vector<Way> ways = {{90, "", wide_tolerance(GetParam())},  {33, "batch=gemm", wide_tolerance(GetParam())},
                             {5, "", batch_tolerance(GetParam())},  {3, "", narrow_tolerance(GetParam())},
                             {1, "", narrow_tolerance(GetParam())}, {1, "decode=matvec", narrow_tolerance(GetParam())}};
    if (format != Format::kBF16) ways.push_back({90, "gemm=mmq,batch=gemm", wide_tolerance(GetParam())});
    for (const Way& way : ways) {
      const double error = relative_error(run(model, tokens, way.chunk, way.kernels), expected);
      std::printf("%s %s chunk %u %s: relative error %.2e\n", std::string(test::tiny_name(GetParam())).c_str(),
                  std::string(quant::info(format).name).c_str(), way.chunk, way.kernels.c_str(), error);
      EXPECT_LT(error, way.tolerance) << quant::info(format).name << " chunk " << way.chunk << " " << way.kernels;
    }
  }
}

TEST_P(CudaExecutorTest, ChunksDoNotMatter) {
  const auto model = test::tiny_model(GetParam(), 32, Format::kQ8_0);
  const auto tokens = some_tokens(300, model->config().V, 5);
  const test::Logits whole = run(model, tokens, 100);
  for (const uint32_t chunk : {1u, 2u, 3u, 7u, 8u, 9u, 31u, 33u, 64u, 127u}) {
    EXPECT_LT(relative_error(run(model, tokens, chunk), whole), wide_tolerance(GetParam())) << chunk;
  }
}

TEST_P(CudaExecutorTest, SwitchesDoNotMatter) {
  const auto model = test::tiny_model(GetParam(), 32, Format::kQ8_0);
  const auto tokens = some_tokens(60, model->config().V, 7);
  const test::Logits decode = run(model, tokens, 1);
  EXPECT_EQ(relative_error(run(model, tokens, 1, "launch=single"), decode), 0.0) << "graph or not: the same kernels";
  EXPECT_EQ(relative_error(run(model, tokens, 1, "overlap=off"), decode), 0.0) << "overlap changes when, not what";
  EXPECT_LT(relative_error(run(model, tokens, 1, "decode=gemm"), decode), wide_tolerance(GetParam()));
  const test::Logits prompt = run(model, tokens, 60);
  EXPECT_EQ(relative_error(run(model, tokens, 60, "ple.table=host"), prompt), 0.0) << "the same rows from elsewhere";
  EXPECT_EQ(relative_error(run(model, tokens, 1, "ple.table=host"), decode), 0.0);
  // The same bf16 values in every layer; only the LM head of many rows runs another way without a copy of its weights.
  EXPECT_LT(relative_error(run(model, tokens, 60, "gemm.weights=unpacked"), prompt), wide_tolerance(GetParam()));
}

TEST_P(CudaExecutorTest, ShortcutDoesNotMatter) {
  const auto model = test::tiny_model(GetParam(), 32, Format::kQ8_0);
  const auto tokens = some_tokens(120, model->config().V, 9);
  for (const uint32_t outputs : {1u, 3u, 20u}) {
    std::vector<test::Logits> results;
    for (const bool shortcut : {true, false}) {
      ExecutorOptions options = options_for(128);
      options.kv_share_shortcut = shortcut;
      const auto executor = make_cuda_executor(model, options);
      results.push_back(test::feed(*executor, 0, tokens, 120, 120 - outputs));
    }
    EXPECT_LT(relative_error(results[0], results[1]), wide_tolerance(GetParam())) << outputs;
  }
}

TEST_P(CudaExecutorTest, RaggedBatchesEqualSeparateRuns) {
  const auto model = test::tiny_model(GetParam(), 32, Format::kQ8_0);
  const auto executor = make_cuda_executor(model, options_for(128));
  std::vector<std::vector<int32_t>> texts;
  std::vector<test::Logits> separate;
  for (uint32_t s = 0; s < 3; ++s) {
    texts.push_back(some_tokens(40 + 13 * s, model->config().V, 20 + s));
    separate.push_back(run(model, texts.back(), 16));
  }
  // Passes that mix the sequences in varying amounts, small enough for the narrow and large enough for the wide path.
  std::vector<uint32_t> done(3, 0);
  test::Logits mixed[3];
  for (uint32_t step = 0; done[0] + done[1] + done[2] < texts[0].size() + texts[1].size() + texts[2].size(); ++step) {
    std::vector<Row> rows;
    for (uint32_t s = 0; s < 3; ++s) {
      const uint32_t take = (step * 7 + s * 5) % (step % 2 == 0 ? 3 : 17);
      for (uint32_t i = 0; i < take && done[s] < texts[s].size(); ++i, ++done[s]) {
        rows.push_back({texts[s][done[s]], done[s], s, true});
      }
    }
    if (rows.empty()) continue;
    executor->forward(rows);
    for (uint32_t r = 0; r < rows.size(); ++r) {
      const auto logits = executor->logits(r);
      mixed[rows[r].sequence].emplace_back(logits.begin(), logits.end());
    }
  }
  for (uint32_t s = 0; s < 3; ++s) EXPECT_LT(relative_error(mixed[s], separate[s]), wide_tolerance(GetParam())) << s;
}

TEST_P(CudaExecutorTest, SelectionAgreesWithTheLogits) {
  const auto model = test::tiny_model(GetParam(), 32, Format::kQ8_0);
  const auto executor = make_cuda_executor(model, options_for(128));
  const auto tokens = some_tokens(30, model->config().V, 31);
  for (uint32_t t = 0; t < tokens.size(); ++t) {
    executor->forward(std::vector<Row>{{tokens[t], t, 0, true}});
    for (const uint32_t k : {1u, 5u, 64u, 1000u, 5000u}) {
      std::vector<Candidate> chosen, expected;
      executor->best(0, k, chosen);
      select_best(executor->logits(0), std::min(k, model->config().V), expected);
      ASSERT_EQ(chosen.size(), expected.size());
      for (size_t i = 0; i < chosen.size(); ++i) {
        ASSERT_EQ(chosen[i].token, expected[i].token) << "k " << k << " at " << i;
        ASSERT_EQ(chosen[i].logit, expected[i].logit);
      }
    }
    std::vector<float> some;
    const std::vector<int32_t> wanted = {0, 5, 3, 5};
    executor->logits_of(0, wanted, some);
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(some[i], executor->logits(0)[static_cast<size_t>(wanted[i])]);
  }
}

TEST_P(CudaExecutorTest, TruncatedSequencesGoOn) {
  const auto model = test::tiny_model(GetParam(), 32, Format::kQ8_0);
  const auto executor = make_cuda_executor(model, options_for(128));
  const auto tokens = some_tokens(100, model->config().V, 41);
  const test::Logits whole = test::feed(*executor, 0, tokens, 50, 0);
  const uint32_t back = executor->truncate(0, 80);
  ASSERT_TRUE(back == 80 || back == 0);
  const std::vector<int32_t> rest(tokens.begin() + back, tokens.end());
  test::Logits again;
  for (uint32_t i = 0; i < rest.size(); ++i) {
    executor->forward(std::vector<Row>{{rest[i], back + i, 0, true}});
    const auto logits = executor->logits(0);
    again.emplace_back(logits.begin(), logits.end());
  }
  EXPECT_LT(relative_error(again, test::Logits(whole.begin() + back, whole.end())), wide_tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaExecutorTest, testing::ValuesIn(test::kTinyKinds),
                         [](const testing::TestParamInfo<TinyKind>& p) {
                           return std::string(test::tiny_name(p.param));
                         });

}  // namespace
}  // namespace carat::exec
