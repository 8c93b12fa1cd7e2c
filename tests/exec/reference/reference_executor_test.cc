#include "exec/reference/reference_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/executor_runs.h"
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

ErrorCode code_of(const std::function<void()>& action, std::string* message = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (message) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "nothing was refused";
  return ErrorCode::kIo;
}

// The same bits are promised, so the comparisons below are exact.
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

TEST_P(ReferenceExecutorOf, ChunksDoNotMatter) {
  const auto prompt = tokens(1);
  const Logits whole = feed(*make(), 0, prompt, kPrompt);
  ASSERT_EQ(whole.size(), kPrompt);
  for (const uint32_t chunk : {1u, 3u, 7u, 8u, 20u}) {
    ExecutorOptions options = small_options();
    options.chunk = chunk;  // also the smallest ring this chunk needs
    EXPECT_EQ(feed(*make(options), 0, prompt, chunk), whole) << "chunk " << chunk;
  }
}

TEST_P(ReferenceExecutorOf, TheShortcutDoesNotMatter) {
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

TEST_P(ReferenceExecutorOf, NeighboursInABatchDoNotMatter) {
  const auto a = tokens(3, 30), b = tokens(4, 17), c = tokens(5, 1);
  const auto alone_a = feed(*make(), 0, a, 64), alone_b = feed(*make(), 0, b, 64), alone_c = feed(*make(), 0, c, 64);

  const auto executor = make();
  feed(*executor, 0, std::span(a).first(10), 64);  // the sequences are of different age
  std::vector<Row> rows;
  for (uint32_t i = 0; i < 20; ++i) {
    rows.push_back({a[10 + i], 10 + i, 0, true});
    if (i < 17) rows.push_back({b[i], i, 2, true});
    if (i == 5) rows.push_back({c[0], 0, 1, true});
  }
  executor->forward(rows);
  ASSERT_EQ(executor->outputs(), rows.size());
  for (uint32_t r = 0; r < rows.size(); ++r) {
    const auto& alone = rows[r].sequence == 0 ? alone_a : rows[r].sequence == 1 ? alone_c : alone_b;
    const auto logits = executor->logits(r);
    EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), alone[rows[r].position]) << "row " << r;
  }
}

TEST_P(ReferenceExecutorOf, TruncatedSequencesGoOnAsIfFresh) {
  const auto prompt = tokens(6), other = tokens(7, 20);
  ExecutorOptions options = small_options();
  options.chunk = 6;  // a ring of 13 positions
  const auto executor = make(options);
  feed(*executor, 0, prompt, 6);

  ASSERT_EQ(executor->truncate(0, 40), 40u);
  const Logits resumed = feed(*executor, 0, other, 6);
  std::vector<int32_t> joined(prompt.begin(), prompt.begin() + 40);
  joined.insert(joined.end(), other.begin(), other.end());
  EXPECT_EQ(resumed, feed(*make(options), 0, joined, 6, 40));

  ASSERT_EQ(executor->truncate(0, 20), 0u);  // its window is gone
  EXPECT_EQ(feed(*executor, 0, other, 6), feed(*make(options), 0, other, 6));
}

TEST_P(ReferenceExecutorOf, ThreadsDoNotMatter) {
  const auto prompt = tokens(8);
  ExecutorOptions options = small_options();
  options.threads = 1;
  EXPECT_EQ(feed(*make(options), 0, prompt, 64), feed(*make(), 0, prompt, 64));
}

TEST_P(ReferenceExecutorOf, AnInterruptedPassChangesNothing) {
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
  EXPECT_EQ(code_of([&] { feed(*executor, 0, second, 10); }), ErrorCode::kInterrupted);
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

INSTANTIATE_TEST_SUITE_P(EveryKind, ReferenceExecutorOf, testing::ValuesIn(test::kTinyKinds),
                         [](const auto& parameter) { return std::string(test::tiny_name(parameter.param)); });

TEST(ReferenceExecutor, SaysWhatItIs) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  const auto executor = make_reference_executor(model, small_options());
  EXPECT_EQ(executor->name(), "reference");
  EXPECT_EQ(&executor->model(), model.get());
  EXPECT_EQ(executor->options().kv_format, quant::Format::kF32);  // asked for F16, and honest about it
  EXPECT_EQ(executor->outputs(), 0u);
}

TEST(ReferenceExecutor, BadRowsChangeNothing) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  const auto executor = make_reference_executor(model, small_options());
  const auto prompt = random_tokens(model->config().V, 5, 1);
  const Logits before = feed(*executor, 0, prompt, 5);
  const std::vector<Row> gap = {{1, 6, 0, true}};
  EXPECT_EQ(code_of([&] { executor->forward(gap); }), ErrorCode::kBadArgument);
  EXPECT_EQ(executor->length(0), 5u);
  EXPECT_EQ(test::copy_outputs(*executor), before);
}

TEST(ReferenceExecutor, SelectionsAgreeWithTheLogits) {
  const auto model = test::tiny_model(TinyKind::k12B);
  const auto executor = make_reference_executor(model, small_options());
  const Logits logits = feed(*executor, 0, random_tokens(model->config().V, 5, 1), 5);
  std::vector<Candidate> best;
  executor->best(4, 3, best);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].logit, *std::max_element(logits[4].begin(), logits[4].end()));
  EXPECT_EQ(best[2].logit, logits[4][static_cast<size_t>(best[2].token)]);
  std::vector<float> some;
  executor->logits_of(4, std::vector<int32_t>{7, 0, 7}, some);
  EXPECT_THAT(some, testing::ElementsAre(logits[4][7], logits[4][0], logits[4][7]));
}

TEST(ReferenceExecutor, TheSoftcapBendsTheLogits) {
  test::TinyShape shape = test::tiny_shape(TinyKind::k31B);
  shape.softcap = 0.0f;
  const auto plain = test::load_draft(test::tiny_draft(shape));
  shape.softcap = 4.0f;
  const auto capped = test::load_draft(test::tiny_draft(shape));
  const auto prompt = random_tokens(plain->config().V, 3, 1);
  const Logits raw = feed(*make_reference_executor(plain, small_options()), 0, prompt, 3);
  const Logits bent = feed(*make_reference_executor(capped, small_options()), 0, prompt, 3);
  for (size_t r = 0; r < raw.size(); ++r) {
    for (size_t i = 0; i < raw[r].size(); ++i) EXPECT_FLOAT_EQ(bent[r][i], 4.0f * std::tanh(raw[r][i] / 4.0f));
  }
}

TEST(ReferenceExecutor, ASeparateOutputMatrixIsUsed) {
  test::TinyShape shape = test::tiny_shape(TinyKind::k12B);
  const auto tied = test::load_draft(test::tiny_draft(shape));
  test::GgufDraft draft = test::tiny_draft(shape);
  test::GgufDraft::Tensor output = draft.tensor("token_embd.weight");
  output.name = "output.weight";
  for (float& value : output.values) value = -value;
  draft.tensors.push_back(output);
  const auto separate = test::load_draft(draft);
  const auto prompt = random_tokens(tied->config().V, 3, 1);
  const Logits a = feed(*make_reference_executor(tied, small_options()), 0, prompt, 3);
  const Logits b = feed(*make_reference_executor(separate, small_options()), 0, prompt, 3);
  for (size_t i = 0; i < a[2].size(); ++i) EXPECT_EQ(a[2][i], -b[2][i]);
}

TEST(ReferenceExecutor, NonFiniteLogitsAreReported) {
  for (const TinyKind kind : {TinyKind::kE4B, TinyKind::k26B}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      test::TinyShape shape = test::tiny_shape(kind);
      shape.separate_output = true;
      test::GgufDraft draft = test::tiny_draft(shape);
      draft.tensor("token_embd.weight").values[size_t{9} * shape.d + 3] = bad;  // only token 9 is poisoned
      const auto model = test::load_draft(draft);
      const auto executor = make_reference_executor(model, small_options());
      const std::vector<Row> poisoned = {{9, 0, 0, true}}, sound = {{8, 0, 0, true}};
      EXPECT_EQ(code_of([&] { executor->forward(poisoned); }), ErrorCode::kNonFinite);
      EXPECT_EQ(executor->length(0), 0u);
      EXPECT_EQ(executor->outputs(), 0u);
      EXPECT_NO_THROW(executor->forward(sound));
      EXPECT_EQ(executor->length(0), 1u);
    }
  }
}

TEST(ReferenceExecutor, AnInfiniteOutputRowIsNotHiddenByTheSoftcap) {
  test::TinyShape shape = test::tiny_shape(TinyKind::k12B);
  shape.separate_output = true;
  test::GgufDraft draft = test::tiny_draft(shape);
  draft.tensor("output.weight").values[5] = std::numeric_limits<float>::infinity();
  const auto executor = make_reference_executor(test::load_draft(draft), small_options());
  const std::vector<Row> rows = {{8, 0, 0, true}};
  EXPECT_EQ(code_of([&] { executor->forward(rows); }), ErrorCode::kNonFinite);
}

TEST(ReferenceExecutor, ADrafterIsRefused) {
  const auto drafter = test::load_draft(test::tiny_drafter_draft(test::tiny_shape(TinyKind::kE2B)));
  std::string message;
  EXPECT_EQ(code_of([&] { make_reference_executor(drafter, small_options()); }, &message), ErrorCode::kBadArgument);
  EXPECT_THAT(message, testing::HasSubstr("is a drafter"));
}

TEST(ReferenceExecutor, AnImpossibleCacheIsRefusedWithItsSize) {
  ExecutorOptions options = small_options();
  options.context = model::kMaxPositions;
  options.sequences = 1024;
  std::string message;
  const auto model = test::tiny_model(TinyKind::kE2B);
  EXPECT_EQ(code_of([&] { make_reference_executor(model, options); }, &message), ErrorCode::kOutOfMemory);
  EXPECT_THAT(message, testing::HasSubstr("MiB"));
}

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
