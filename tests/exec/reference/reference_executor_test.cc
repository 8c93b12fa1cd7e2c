// What is special to the reference executor; exec/conformance has what it promises as every executor does. The same
// bits are promised, so the comparisons are exact.
#include "exec/reference/reference_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/executor_runs.h"
#include "support/raised_error.h"
#include "support/tiny_model.h"

namespace carat::exec {
namespace {

using test::feed;
using test::Logits;
using test::random_tokens;
using test::TinyKind;

constexpr size_t kPrompt = 45;  // crosses the window of 8 several times

ExecutorOptions small_options() {
  ExecutorOptions options;
  options.context = 128;
  options.sequences = 3;
  options.chunk = 64;
  options.threads = 2;
  return options;
}

class ReferenceExecutorOf : public testing::TestWithParam<TinyKind> {
 protected:
  std::unique_ptr<Executor> make(const ExecutorOptions& options = small_options(), Trace trace = {}) const {
    return make_reference_executor(model_, options, std::move(trace));
  }
  std::vector<int32_t> tokens(uint64_t seed, size_t count = kPrompt) const {
    return random_tokens(model_->config().V, count, seed);
  }

  std::shared_ptr<const model::Model> model_ = test::tiny_model(GetParam());
};

TEST_P(ReferenceExecutorOf, RowsWithoutLogitsEndWithTheLastCache) {
  const auto prompt = tokens(2);
  const auto& config = model_->config();
  std::map<uint32_t, size_t> rows_in_layer;
  const Trace count_rows = [&](std::string_view stage, uint32_t layer, uint32_t, std::span<const float>) {
    if (stage == "layer") ++rows_in_layer[layer];
  };
  ExecutorOptions options = small_options();
  const Logits with = feed(*make(options, count_rows), 0, prompt, 20, kPrompt - 3);
  for (uint32_t layer = 0; layer < config.L; ++layer) {
    EXPECT_EQ(rows_in_layer[layer], layer < config.n_kv ? kPrompt : 3u) << "layer " << layer;
  }
  options.kv_share_shortcut = false;
  rows_in_layer.clear();
  const Logits without = feed(*make(options, count_rows), 0, prompt, 20, kPrompt - 3);
  EXPECT_EQ(rows_in_layer[config.L - 1], kPrompt);
  EXPECT_EQ(with.size(), 3u);
  EXPECT_EQ(with, without);
}

TEST_P(ReferenceExecutorOf, APassInterruptedBetweenLayersChangesNothing) {
  const auto prompt = tokens(9, 20);
  std::atomic<bool> cancelled = false;
  ExecutorOptions options = small_options();
  options.chunk = 10;
  options.cancelled = &cancelled;
  size_t layers_run = 0;
  const auto executor =
      make(options, [&](std::string_view stage, uint32_t layer, uint32_t row, std::span<const float>) {
        // Interrupts the second pass while its second layer runs.
        if (stage == "layer" && layer == 1 && row == 0 && ++layers_run == 2) cancelled = true;
      });
  const auto first = std::span(prompt).first(10), second = std::span(prompt).subspan(10);
  feed(*executor, 0, first, 10);
  EXPECT_EQ(test::error_of([&] { feed(*executor, 0, second, 10); }).code, ErrorCode::kInterrupted);
  EXPECT_EQ(executor->length(0), 10u);
  EXPECT_EQ(executor->outputs(), 0u);
  cancelled = false;
  EXPECT_EQ(feed(*executor, 0, second, 10), feed(*make(), 0, prompt, 64, 10));
}

TEST_P(ReferenceExecutorOf, QuantisedWeightsRun) {
  const auto model = test::tiny_model(GetParam(), 256, quant::Format::kQ4_K);
  const auto executor = make_reference_executor(model, small_options());
  const auto prompt = random_tokens(model->config().V, 12, 10);
  const Logits logits = feed(*executor, 0, prompt, 5);
  EXPECT_EQ(logits, feed(*make_reference_executor(model, small_options()), 0, prompt, 12));
}

INSTANTIATE_TEST_SUITE_P(EveryKind, ReferenceExecutorOf, testing::ValuesIn(test::kTinyKinds), test::tiny_test_name);

TEST(ReferenceExecutor, TheTraceFollowsTheLayers) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  const auto& config = model->config();
  std::vector<std::string> stages;
  const auto executor = make_reference_executor(
      model, small_options(), [&](std::string_view stage, uint32_t layer, uint32_t row, std::span<const float> values) {
        stages.push_back(std::string(stage) + std::to_string(layer) + "/" + std::to_string(row));
        EXPECT_EQ(values.size(), stage == "ple" ? size_t{config.P} * config.L : config.d);
      });
  const std::vector<Row> rows = {{1, 0, 0, false}, {2, 1, 0, true}};
  executor->forward(rows);
  EXPECT_THAT(std::vector<std::string>(stages.begin(), stages.begin() + 6),
              testing::ElementsAre("embedding0/0", "embedding0/1", "ple0/0", "ple0/1", "attention0/0", "attention0/1"));
  EXPECT_EQ(stages.back(), "final_norm10/1");
}

}  // namespace
}  // namespace carat::exec
