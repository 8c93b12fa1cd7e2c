#include "exec/cpu/cpu_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "exec/cpu/instruction_set.h"
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

// The same bits are promised whatever the batch, the threads and the shortcut, so the comparisons below are exact. Q8_0
// weights, so that both the integer and the float kernels take part (some widths are no multiple of 32).
class CpuExecutorOf : public testing::TestWithParam<std::tuple<TinyKind, std::string>> {
 protected:
  ExecutorOptions options() const {
    ExecutorOptions options = small_options();
    options.kernels = KernelChoices::parse("dot=" + std::get<1>(GetParam()));
    return options;
  }
  std::unique_ptr<Executor> make() const { return make(options()); }
  std::unique_ptr<Executor> make(const ExecutorOptions& options) const { return make_cpu_executor(model_, options); }
  std::vector<int32_t> tokens(uint64_t seed, size_t count = kPrompt) const {
    return random_tokens(model_->config().V, count, seed);
  }

  std::shared_ptr<const model::Model> model_ = test::tiny_model(std::get<0>(GetParam()), 32, quant::Format::kQ8_0);
};

TEST_P(CpuExecutorOf, ChunksDoNotMatter) {
  const auto prompt = tokens(1);
  const Logits whole = feed(*make(), 0, prompt, kPrompt);
  ASSERT_EQ(whole.size(), kPrompt);
  for (const uint32_t chunk : {1u, 3u, 7u, 8u, 20u}) {
    ExecutorOptions chunked = options();
    chunked.chunk = chunk;  // also the smallest ring this chunk needs
    EXPECT_EQ(feed(*make(chunked), 0, prompt, chunk), whole) << "chunk " << chunk;
  }
}

TEST_P(CpuExecutorOf, TheShortcutDoesNotMatter) {
  const auto prompt = tokens(2);
  ExecutorOptions full = options();
  full.kv_share_shortcut = false;
  for (const size_t wanted : {kPrompt - 1, kPrompt - 3, size_t{0}}) {
    const Logits with = feed(*make(), 0, prompt, 20, wanted);
    EXPECT_EQ(with.size(), kPrompt - wanted);
    EXPECT_EQ(with, feed(*make(full), 0, prompt, 20, wanted));
  }
}

TEST_P(CpuExecutorOf, APassMayWantNoLogits) {
  const auto prompt = tokens(2);
  for (const bool shortcut : {true, false}) {
    ExecutorOptions choice = options();
    choice.kv_share_shortcut = shortcut;
    const auto executor = make(choice);
    EXPECT_TRUE(feed(*executor, 0, std::span(prompt).first(40), 40, kPrompt).empty());
    EXPECT_EQ(executor->outputs(), 0u);
    EXPECT_EQ(executor->length(0), 40u);
    EXPECT_EQ(feed(*executor, 0, std::span(prompt).subspan(40), 5), feed(*make(), 0, prompt, 64, 40));
  }
}

TEST_P(CpuExecutorOf, NeighboursInABatchDoNotMatter) {
  const auto a = tokens(3, 30), b = tokens(4, 17), c = tokens(5, 1);
  const auto alone_a = feed(*make(), 0, a, 64), alone_b = feed(*make(), 0, b, 64), alone_c = feed(*make(), 0, c, 64);

  const auto executor = make();
  feed(*executor, 0, std::span(a).first(10), 64);  // the sequences are of different age
  std::vector<Row> rows;
  for (uint32_t i = 0; i < 20; ++i) {
    rows.push_back({a[10 + i], 10 + i, 0, i % 2 == 0});
    if (i < 17) rows.push_back({b[i], i, 2, true});
    if (i == 5) rows.push_back({c[0], 0, 1, true});
  }
  executor->forward(rows);
  uint32_t output = 0;
  for (const Row& row : rows) {
    if (!row.wants_logits) continue;
    const auto& alone = row.sequence == 0 ? alone_a : row.sequence == 1 ? alone_c : alone_b;
    const auto logits = executor->logits(output++);
    EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), alone[row.position])
        << "sequence " << row.sequence << ", position " << row.position;
  }
  EXPECT_EQ(executor->outputs(), output);
}

TEST_P(CpuExecutorOf, TruncatedSequencesGoOnAsIfFresh) {
  const auto prompt = tokens(6), other = tokens(7, 20);
  ExecutorOptions small_ring = options();
  small_ring.chunk = 6;  // a ring of 13 positions
  const auto executor = make(small_ring);
  feed(*executor, 0, prompt, 6);

  ASSERT_EQ(executor->truncate(0, 40), 40u);
  const Logits resumed = feed(*executor, 0, other, 6);
  std::vector<int32_t> joined(prompt.begin(), prompt.begin() + 40);
  joined.insert(joined.end(), other.begin(), other.end());
  EXPECT_EQ(resumed, feed(*make(small_ring), 0, joined, 6, 40));

  ASSERT_EQ(executor->truncate(0, 20), 0u);  // its window is gone
  EXPECT_EQ(feed(*executor, 0, other, 6), feed(*make(small_ring), 0, other, 6));
}

TEST_P(CpuExecutorOf, ThreadsDoNotMatter) {
  const auto prompt = tokens(8);
  const Logits two = feed(*make(), 0, prompt, 40);
  for (const unsigned threads : {1u, 3u, 5u}) {
    ExecutorOptions other = options();
    other.threads = threads;
    EXPECT_EQ(feed(*make(other), 0, prompt, 40), two) << threads << " threads";
  }
}

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const cpu::KernelTable* table : cpu::usable_kernels()) names.emplace_back(table->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(EveryKind, CpuExecutorOf,
                         testing::Combine(testing::ValuesIn(test::kTinyKinds), testing::ValuesIn(table_names())),
                         [](const auto& parameter) {
                           return std::string(test::tiny_name(std::get<0>(parameter.param))) + "_" +
                                  std::get<1>(parameter.param);
                         });

TEST(CpuExecutor, AnInterruptedPassChangesNothing) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  const auto prompt = random_tokens(model->config().V, 20, 9);
  std::atomic<bool> cancelled = false;
  ExecutorOptions options = small_options();
  options.cancelled = &cancelled;
  const auto executor = make_cpu_executor(model, options);
  feed(*executor, 0, std::span(prompt).first(10), 10);
  cancelled = true;
  EXPECT_EQ(code_of([&] { feed(*executor, 0, std::span(prompt).subspan(10), 10); }), ErrorCode::kInterrupted);
  EXPECT_EQ(executor->length(0), 10u);
  EXPECT_EQ(executor->outputs(), 0u);
  cancelled = false;
  const auto fresh = make_cpu_executor(model, small_options());
  EXPECT_EQ(feed(*executor, 0, std::span(prompt).subspan(10), 10), feed(*fresh, 0, prompt, 64, 10));
}

TEST(CpuExecutor, TheFlagIsSeenWhileAPassRuns) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  std::atomic<bool> cancelled = false;
  ExecutorOptions options = small_options();
  options.context = 100'000;
  options.cancelled = &cancelled;
  const auto executor = make_cpu_executor(model, options);
  const auto prompt = random_tokens(model->config().V, 100'000, 9);
  std::thread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancelled = true;
  });
  EXPECT_EQ(code_of([&] { feed(*executor, 0, prompt, 64, prompt.size()); }), ErrorCode::kInterrupted);
  user.join();
  EXPECT_EQ(executor->length(0) % 64, 0u);  // whole passes only
}

TEST(CpuExecutor, SaysWhatItIs) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  const auto executor = make_cpu_executor(model, small_options());
  EXPECT_EQ(executor->name(), "cpu");
  EXPECT_EQ(&executor->model(), model.get());
  EXPECT_EQ(executor->options().kv_format, quant::Format::kF16);
  EXPECT_EQ(executor->outputs(), 0u);
}

TEST(CpuExecutor, BadRowsChangeNothing) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  const auto executor = make_cpu_executor(model, small_options());
  const auto prompt = random_tokens(model->config().V, 5, 1);
  const Logits before = feed(*executor, 0, prompt, 5);
  const std::vector<Row> gap = {{1, 6, 0, true}};
  EXPECT_EQ(code_of([&] { executor->forward(gap); }), ErrorCode::kBadArgument);
  EXPECT_EQ(executor->length(0), 5u);
  EXPECT_EQ(test::copy_outputs(*executor), before);
}

TEST(CpuExecutor, SelectionsAgreeWithTheLogits) {
  const auto model = test::tiny_model(TinyKind::k12B);
  const auto executor = make_cpu_executor(model, small_options());
  const Logits logits = feed(*executor, 0, random_tokens(model->config().V, 5, 1), 5);
  std::vector<Candidate> best;
  executor->best(4, 3, best);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].logit, *std::max_element(logits[4].begin(), logits[4].end()));
  std::vector<float> some;
  executor->logits_of(4, std::vector<int32_t>{7, 0, 7}, some);
  EXPECT_THAT(some, testing::ElementsAre(logits[4][7], logits[4][0], logits[4][7]));
}

TEST(CpuExecutor, ValuesThatAreNotFiniteAreReported) {
  for (const TinyKind kind : {TinyKind::kE4B, TinyKind::k26B}) {
    for (const auto format : {quant::Format::kF32, quant::Format::kQ8_0}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        test::TinyShape shape = test::tiny_shape(kind, 32);
        shape.separate_output = true;
        test::GgufDraft draft = test::tiny_draft(shape, format);
        test::GgufDraft::Tensor& embedding = draft.tensor("token_embd.weight");
        embedding.type = static_cast<uint32_t>(quant::Format::kF32);
        embedding.values[size_t{9} * shape.d + 3] = bad;  // only token 9 is poisoned
        const auto executor = make_cpu_executor(test::load_draft(draft), small_options());
        const std::vector<Row> poisoned = {{9, 0, 0, true}}, sound = {{8, 0, 0, true}};
        EXPECT_EQ(code_of([&] { executor->forward(poisoned); }), ErrorCode::kNonFinite);
        EXPECT_EQ(executor->length(0), 0u);
        EXPECT_EQ(executor->outputs(), 0u);
        EXPECT_NO_THROW(executor->forward(sound));
        EXPECT_EQ(executor->length(0), 1u);
      }
    }
  }
}

TEST(CpuExecutor, WhatItCannotDoIsRefused) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  std::string message;
  ExecutorOptions quantised_cache = small_options();
  quantised_cache.kv_format = quant::Format::kQ4_0;
  EXPECT_EQ(code_of([&] { make_cpu_executor(model, quantised_cache); }, &message), ErrorCode::kUnsupported);
  EXPECT_THAT(message, testing::HasSubstr("F16, F32 or Q8_0"));
  quantised_cache.kv_format = quant::Format::kQ8_0;  // the heads of this model are 16 wide
  EXPECT_EQ(code_of([&] { make_cpu_executor(model, quantised_cache); }, &message), ErrorCode::kUnsupported);
  EXPECT_THAT(message, testing::HasSubstr("multiple of 32"));

  ExecutorOptions foreign_kernel = small_options();
  foreign_kernel.kernels = KernelChoices::parse("arithmetic=double");
  EXPECT_EQ(code_of([&] { make_cpu_executor(model, foreign_kernel); }), ErrorCode::kBadArgument);

  ExecutorOptions huge = small_options();
  huge.context = model::kMaxPositions;
  huge.sequences = 1024;
  EXPECT_EQ(code_of([&] { make_cpu_executor(model, huge); }), ErrorCode::kOutOfMemory);

  const auto drafter = test::load_draft(test::tiny_drafter_draft(test::tiny_shape(TinyKind::kE2B)));
  EXPECT_EQ(code_of([&] { make_cpu_executor(drafter, small_options()); }, &message), ErrorCode::kBadArgument);
  EXPECT_THAT(message, testing::HasSubstr("drafter"));
}

}  // namespace
}  // namespace carat::exec
