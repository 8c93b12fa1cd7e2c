// The reference executor against logits that an independent fp32 implementation computed for the demo models
// (models/references.json.xz): this is what makes it a yardstick for everything else.
#include "exec/reference/reference_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parity/demo_model_test.h"
#include "support/executor_runs.h"

namespace carat::exec {
namespace {

using test::Reference;

// Both sides store fp32; what differs is the order of additions and the precision of angles.
constexpr double kLogitTolerance = 2e-3;
constexpr double kStateTolerance = 2e-3;
// A token that won by less than this may lose to its rival by rounding alone.
constexpr float kMeaningfulGap = 1e-4f;
constexpr size_t kLongPrompt = 1000;
constexpr uint32_t kChunk = 256;
// Sanitizers make the reference some fifty times slower. They look for mistakes of memory and arithmetic, for which the
// shortest prompts are enough; agreement is for the other builds to show.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif
constexpr size_t kSanitizedPrompts = 3;
constexpr size_t kGreedyTokens = kIsSanitized ? 4 : 64;

// The largest differences seen.
struct Figures {
  double top = 0.0, last = 0.0, state = 0.0;
  size_t positions = 0, best_agrees = 0;
  size_t greedy = 0, greedy_agrees = 0;
};

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  return largest;
}

class ReferenceParity : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto demo = test::load_demo_model(GetParam());
    if (!demo) GTEST_SKIP() << "skipped: " << GetParam() << " is not here";
    model_ = demo->model;
    references_ = std::move(demo->references);
    states_.resize(model_->config().L + 2);
  }

  std::unique_ptr<Executor> make(uint32_t context, size_t sequences) {
    ExecutorOptions options;
    options.context = context;
    options.sequences = static_cast<uint32_t>(sequences);
    options.chunk = options.outputs = kChunk;
    return make_reference_executor(model_, options,
                                   [this](std::string_view stage, uint32_t layer, uint32_t, auto values) {
                                     // Rows come in order, so what stays is the last row of the last pass.
                                     if (stage == "embedding") states_.front().assign(values.begin(), values.end());
                                     if (stage == "layer") states_[layer + 1].assign(values.begin(), values.end());
                                     if (stage == "final_norm") states_.back().assign(values.begin(), values.end());
                                   });
  }

  void compare_prompt(Executor& executor, uint32_t sequence, const Reference& reference);
  void compare_states(const Reference& reference);
  void compare_greedy(Executor& executor, std::span<const Reference> references, size_t tokens);
  void expect_agreement() const;

  std::shared_ptr<const model::Model> model_;
  std::vector<Reference> references_;
  std::vector<std::vector<float>> states_;  // [L + 2][d], as in Reference::layers
  Figures figures_;
};

void ReferenceParity::compare_prompt(Executor& executor, uint32_t sequence, const Reference& reference) {
  const test::Logits logits = test::feed(executor, sequence, reference.tokens, kChunk, reference.first);
  ASSERT_EQ(logits.size(), reference.positions());
  for (size_t p = 0; p < logits.size(); ++p) {
    for (size_t k = 0; k < Reference::kTop; ++k) {
      const size_t at = p * Reference::kTop + k;
      const double difference = double{logits[p][reference.top_ids[at]]} - reference.top_logits[at];
      figures_.top = std::max(figures_.top, std::abs(difference));
    }
    const auto best = std::max_element(logits[p].begin(), logits[p].end()) - logits[p].begin();
    const size_t top = p * Reference::kTop;
    const bool agrees = best == reference.top_ids[top];
    EXPECT_TRUE(agrees || reference.top_logits[top] - reference.top_logits[top + 1] < kMeaningfulGap)
        << reference.prompt << ", position " << reference.first + p;
    ++figures_.positions;
    figures_.best_agrees += agrees;
  }
  if (!reference.last_logits.empty()) {
    ASSERT_EQ(reference.last_logits.size(), logits.back().size());
    figures_.last = std::max(figures_.last, largest_difference(reference.last_logits, logits.back()));
    compare_states(reference);
  }
}

void ReferenceParity::compare_states(const Reference& reference) {
  const size_t d = model_->config().d;
  ASSERT_EQ(reference.layers.size(), states_.size() * d);
  for (size_t s = 0; s < states_.size(); ++s) {
    ASSERT_EQ(states_[s].size(), d);
    const auto expected = std::span(reference.layers).subspan(s * d, d);
    const double difference = largest_difference(expected, states_[s]);
    EXPECT_LE(difference, kStateTolerance) << reference.prompt << ", state " << s;
    figures_.state = std::max(figures_.state, difference);
  }
}

// Continues sequence i, which holds the prompt of references[i], all of them in one ragged pass per token.
void ReferenceParity::compare_greedy(Executor& executor, std::span<const Reference> references, size_t tokens) {
  for (size_t step = 0; step < tokens; ++step) {
    std::vector<Row> rows;
    for (uint32_t i = 0; i < references.size(); ++i) {
      const Reference& reference = references[i];
      // The first of these was chosen by the prompt's own last row, which compare_prompt() looked at.
      rows.push_back({reference.greedy[step], executor.length(i), i, true});
    }
    executor.forward(rows);
    if (step + 1 == tokens) break;
    for (uint32_t i = 0; i < references.size(); ++i) {
      std::vector<Candidate> best;
      executor.best(i, 1, best);
      const Reference& reference = references[i];
      const bool agrees = best[0].token == reference.greedy[step + 1];
      EXPECT_TRUE(agrees || reference.gaps[step + 1] < kMeaningfulGap) << reference.prompt << ", token " << step + 1;
      ++figures_.greedy;
      figures_.greedy_agrees += agrees;
    }
  }
}

void ReferenceParity::expect_agreement() const {
  std::printf(
      "%s: %zu positions, the best token agrees at %zu; largest difference of a top-20 logit %.2e, of the last "
      "logits %.2e, of a state %.2e; %zu of %zu greedy tokens agree\n",
      GetParam().c_str(), figures_.positions, figures_.best_agrees, figures_.top, figures_.last, figures_.state,
      figures_.greedy_agrees, figures_.greedy);
  EXPECT_GT(figures_.positions, 0u);
  EXPECT_LE(figures_.top, kLogitTolerance);
  EXPECT_LE(figures_.last, kLogitTolerance);
}

TEST_P(ReferenceParity, ShortPromptsAtEveryPosition) {
  std::erase_if(references_, [](const Reference& reference) { return reference.tokens.size() > kLongPrompt; });
  if (kIsSanitized) {
    std::sort(references_.begin(), references_.end(),
              [](const Reference& a, const Reference& b) { return a.tokens.size() < b.tokens.size(); });
    references_.resize(std::min(references_.size(), kSanitizedPrompts));
  }
  const auto executor = make(1024, references_.size());
  for (uint32_t i = 0; i < references_.size(); ++i) compare_prompt(*executor, i, references_[i]);
  compare_greedy(*executor, references_, kGreedyTokens);
  expect_agreement();
}

class LongReferenceParity : public ReferenceParity {};

TEST_P(LongReferenceParity, LongPromptsAtTheirEnd) {
  if (kIsSanitized) GTEST_SKIP() << "skipped: long prompts take too long under a sanitizer";
  std::erase_if(references_, [](const Reference& reference) { return reference.tokens.size() <= kLongPrompt; });
  for (const Reference& reference : references_) {
    const auto executor = make(4096, 1);
    compare_prompt(*executor, 0, reference);
    compare_greedy(*executor, std::span(&reference, 1), 24);
  }
  expect_agreement();
}

INSTANTIATE_TEST_SUITE_P(DemoModels, ReferenceParity,
                         testing::Values("demo-e-q8_0.gguf", "demo-moe-q8_0.gguf", "demo-e-q4_0.gguf",
                                         "demo-e-bf16.gguf"),
                         test::demo_test_name);
// The other two differ from demo-e-q8_0 in the weight format only; what long prompts add is positions and windows.
INSTANTIATE_TEST_SUITE_P(DemoModels, LongReferenceParity, testing::Values("demo-e-q8_0.gguf", "demo-moe-q8_0.gguf"),
                         test::demo_test_name);

}  // namespace
}  // namespace carat::exec
