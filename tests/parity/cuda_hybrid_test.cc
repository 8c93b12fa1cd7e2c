// A model of which the CPU runs the first layers and the GPU the others, against the reference executor and against the
// GPU alone, for every place a model can be cut at.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "exec/cuda/cuda_executor.h"
#include "exec/cuda/split.h"
#include "exec/reference/reference_executor.h"
#include "parity/logit_error.h"
#include "support/executor_runs.h"
#include "support/tiny_model.h"

namespace carat::exec {
namespace {

using quant::Format;
using test::relative_error;
using test::TinyKind;
using test::wide_tolerance;

ExecutorOptions test_options() {
  ExecutorOptions options;
  options.context = 384;
  options.sequences = 3;
  options.chunk = 128;
  options.outputs = 128;
  options.threads = 2;
  return options;
}

class CudaHybridTest : public testing::TestWithParam<TinyKind> {
 protected:
  void SetUp() override {
    std::string why;
    if (!cuda_available(&why)) GTEST_SKIP() << "skipped: no GPU (" << why << ")";
    model_ = test::tiny_model(GetParam(), 32, Format::kQ8_0);
  }

  uint32_t last_split() const { return cuda::last_split(model_->config()); }
  // The executor that leaves the first `split` layers to the CPU; 0: none.
  std::unique_ptr<Executor> make(uint32_t split, ExecutorOptions options = test_options()) const {
    options.gpu_layers = model_->config().L - split;
    auto executor = make_cuda_executor(model_, options);
    EXPECT_EQ(executor->name(), split == 0 ? "cuda" : "cuda+cpu");
    return executor;
  }
  std::vector<int32_t> tokens(size_t count, uint64_t seed) const {
    return test::random_tokens(model_->config().V, count, seed);
  }

  std::shared_ptr<const model::Model> model_;
};

TEST_P(CudaHybridTest, EverySplitIsCloseToTheReferenceAndToTheGpuAlone) {
  const auto text = tokens(90, 3);
  const auto reference = make_reference_executor(model_, test_options());
  const test::Logits expected = test::feed(*reference, 0, text, 128);
  ASSERT_GT(last_split(), 0u);
  for (const uint32_t chunk : {90u, 1u, 5u, 33u}) {  // a prompt, decode, a padded bucket, prompts in pieces
    const test::Logits gpu = test::feed(*make(0), 0, text, chunk);
    for (uint32_t split = 1; split <= last_split(); ++split) {
      const test::Logits hybrid = test::feed(*make(split), 0, text, chunk);
      EXPECT_LT(relative_error(hybrid, expected), wide_tolerance(GetParam()))
          << "split " << split << " chunk " << chunk;
      EXPECT_LT(relative_error(hybrid, gpu), wide_tolerance(GetParam())) << "split " << split << " chunk " << chunk;
    }
  }
}

TEST_P(CudaHybridTest, SwitchesDoNotMatter) {
  const auto text = tokens(60, 7);
  const uint32_t split = last_split();
  const auto run = [&](const std::string& kernels, uint32_t chunk) {
    ExecutorOptions options = test_options();
    options.kernels = KernelChoices::parse(kernels);
    return test::feed(*make(split, options), 0, text, chunk);
  };
  const test::Logits decode = run("", 1);
  EXPECT_EQ(relative_error(run("launch=single", 1), decode), 0.0) << "graph or not: the same kernels";
  EXPECT_EQ(relative_error(run("overlap=off", 1), decode), 0.0) << "overlap changes when, not what";
  EXPECT_LT(relative_error(run("decode=gemm", 1), decode), wide_tolerance(GetParam()));
  // The same bf16 values in every layer; only the LM head of many rows runs another way without a copy of its weights.
  EXPECT_LT(relative_error(run("gemm.weights=unpacked", 60), run("", 60)), wide_tolerance(GetParam()));
}

// Few rows that want logits go on narrow after the last layer that owns keys and values, many go on wide, and a pass of
// eight rows or fewer is narrow from the start.
TEST_P(CudaHybridTest, ShortcutDoesNotMatter) {
  const auto text = tokens(120, 9);
  for (const uint32_t split : {1u, last_split()}) {
    for (const uint32_t chunk : {120u, 7u}) {
      for (const uint32_t outputs : {1u, 3u, 20u}) {
        std::vector<test::Logits> results;
        for (const bool shortcut : {true, false}) {
          ExecutorOptions options = test_options();
          options.kv_share_shortcut = shortcut;
          results.push_back(test::feed(*make(split, options), 0, text, chunk, 120 - outputs));
        }
        EXPECT_LT(relative_error(results[0], results[1]), wide_tolerance(GetParam()))
            << split << " " << chunk << " " << outputs;
      }
    }
  }
}

TEST_P(CudaHybridTest, RaggedBatchesEqualSeparateRuns) {
  const uint32_t split = last_split();
  std::vector<std::vector<int32_t>> texts;
  std::vector<test::Logits> separate;
  size_t total = 0;
  for (uint32_t s = 0; s < 3; ++s) {
    texts.push_back(tokens(40 + 13 * s, 20 + s));
    separate.push_back(test::feed(*make(split), 0, texts.back(), 16));
    total += texts.back().size();
  }
  const auto executor = make(split);
  std::vector<uint32_t> done(3, 0);
  test::Logits mixed[3];
  for (uint32_t step = 0; done[0] + done[1] + done[2] < total; ++step) {
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

TEST_P(CudaHybridTest, TruncatedSequencesGoOn) {
  const auto text = tokens(100, 41);
  for (const uint32_t split : {1u, last_split()}) {
    const auto executor = make(split);
    const test::Logits whole = test::feed(*executor, 0, text, 50);
    const uint32_t back = executor->truncate(0, 80);
    ASSERT_TRUE(back == 80 || back == 0);
    EXPECT_EQ(executor->length(0), back);
    const std::vector<int32_t> rest(text.begin() + back, text.end());
    const test::Logits again = test::feed(*executor, 0, rest, 1);
    EXPECT_LT(relative_error(again, test::Logits(whole.begin() + back, whole.end())), wide_tolerance(GetParam()))
        << split;
  }
}

TEST_P(CudaHybridTest, AnInterruptedPassLeavesEverythingAsItWas) {
  const auto text = tokens(60, 51);
  std::atomic<bool> cancelled = false;
  ExecutorOptions options = test_options();
  options.cancelled = &cancelled;
  const auto executor = make(last_split(), options);
  const test::Logits expected = test::feed(*make(last_split()), 0, text, 20);
  test::Logits logits = test::feed(*executor, 0, std::span(text).first(40), 20);
  cancelled = true;
  try {
    test::feed(*executor, 0, std::span(text).subspan(40), 20);
    ADD_FAILURE() << "the pass went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
  EXPECT_EQ(executor->length(0), 40u);
  cancelled = false;
  for (auto& row : test::feed(*executor, 0, std::span(text).subspan(40), 20)) logits.push_back(std::move(row));
  EXPECT_EQ(relative_error(logits, expected), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaHybridTest, testing::ValuesIn(test::kTinyKinds),
                         [](const testing::TestParamInfo<TinyKind>& p) {
                           return std::string(test::tiny_name(p.param));
                         });

}  // namespace
}  // namespace carat::exec
