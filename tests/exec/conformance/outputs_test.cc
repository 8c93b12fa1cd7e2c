// What is told of a pass's results: logits, the best of them, their sum, and which of them are not finite.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "exec/conformance/executor_conformance.h"
#include "support/logit_error.h"
#include "support/raised_error.h"

namespace carat::exec {
namespace {

using test::error_of;
using test::feed;
using test::Logits;

TEST_P(ExecutorConformance, SaysWhatItIs) {
  const auto executor = make();
  EXPECT_EQ(executor->name(), under_test().executor_name);
  EXPECT_EQ(&executor->model(), model_.get());
  EXPECT_EQ(executor->options().kv_format, under_test().cache);
  EXPECT_EQ(executor->rows_are_independent(), under_test().same_bits);
  EXPECT_EQ(executor->outputs(), 0u);
}

TEST_P(ExecutorConformance, SelectionsAgreeWithTheLogits) {
  const auto executor = make();
  const auto text = tokens(30, 31);
  for (uint32_t first = 0; first < text.size(); first += 5) {
    // One row at a time, and five.
    const Logits logits = feed(*executor, 0, std::span(text).subspan(first, 5), first % 2 == 0 ? 5 : 1);
    const Logits last = test::copy_outputs(*executor);
    ASSERT_EQ(logits.back(), last.back());
    for (uint32_t output = 0; output < executor->outputs(); ++output) {
      for (const uint32_t k : {1u, 3u, 5u, 64u, 1000u, 5000u}) {
        std::vector<Candidate> best, expected;
        executor->best(output, k, best);
        select_best(last[output], std::min(k, model_->config().V), expected);
        ASSERT_EQ(best.size(), expected.size());
        for (size_t i = 0; i < best.size(); ++i) {
          ASSERT_EQ(best[i].token, expected[i].token) << "k " << k << " at " << i;
          ASSERT_EQ(best[i].logit, expected[i].logit) << "k " << k << " at " << i;
        }
      }
      std::vector<float> some;
      const std::vector<int32_t> wanted = {7, 0, 5, 7};
      executor->logits_of(output, wanted, some);
      ASSERT_EQ(some.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(some[i], last[output][static_cast<size_t>(wanted[i])]);
      double sum = 0.0;
      for (const float logit : last[output]) sum += std::exp(static_cast<double>(logit));
      ASSERT_NEAR(executor->log_sum_exp(output), std::log(sum), 1e-6);
    }
  }
}

// A row that is not finite says so, and the rows of other sequences have the logits they have without it.
TEST_P(ExecutorConformance, ARowThatIsNotFiniteSpoilsNoOther) {
  constexpr int32_t kPoison = 9, kSound = 8;
  test::TinyShape separate = shape();
  separate.separate_output = true;
  for (const auto weights : {quant::Format::kF32, under_test().weights}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      test::GgufDraft poisoned = test::tiny_draft(separate, weights);
      float_values(poisoned, "token_embd.weight")[size_t{kPoison} * separate.d + 3] = bad;
      const auto executor = make(test::load_draft(poisoned), default_options());
      const std::vector<Row> both = {{kPoison, 0, 0, true}, {kSound, 0, 1, true}}, sound = {{kSound, 0, 0, true}};
      executor->forward(both);
      EXPECT_FALSE(executor->is_finite(0));
      EXPECT_TRUE(executor->is_finite(1));
      EXPECT_EQ(error_of([&] { require_finite(*executor); }).code, ErrorCode::kNonFinite);
      const Logits beside = {test::copy_outputs(*executor).at(1)};
      EXPECT_EQ(executor->truncate(0, 0), 0u);
      executor->forward(sound);
      EXPECT_NO_THROW(require_finite(*executor));
      expect_same(test::copy_outputs(*executor), beside, fmt::format("beside {}", bad));
    }
  }
}

TEST_P(ExecutorConformance, AnInfiniteLogitIsNotHiddenByTheSoftcap) {
  test::TinyShape separate = shape();
  separate.separate_output = true;
  test::GgufDraft infinite = draft(separate);
  float_values(infinite, "output.weight")[5] = std::numeric_limits<float>::infinity();
  const auto executor = make(test::load_draft(infinite), default_options());
  for (const uint32_t rows : {1u, 2u, 20u}) {
    executor->truncate(0, 0);
    feed(*executor, 0, std::vector<int32_t>(rows, 8), rows);
    ASSERT_EQ(executor->outputs(), rows);
    for (uint32_t output = 0; output < rows; ++output) EXPECT_FALSE(executor->is_finite(output)) << rows << " rows";
  }
}

TEST_P(ExecutorConformance, TheSoftcapBendsTheLogits) {
  test::TinyShape changed = shape();
  changed.softcap = 0.0f;
  const auto plain = test::load_draft(draft(changed));
  changed.softcap = 4.0f;
  const auto capped = test::load_draft(draft(changed));
  for (const uint32_t rows : {1u, 3u, 20u}) {
    const auto text = tokens(rows, 1);
    Logits expected = feed(*make(plain, default_options()), 0, text, rows);
    for (auto& logits : expected) {
      for (float& logit : logits) logit = 4.0f * std::tanh(logit / 4.0f);
    }
    EXPECT_LT(test::relative_error(feed(*make(capped, default_options()), 0, text, rows), expected), 1e-6) << rows;
  }
}

TEST_P(ExecutorConformance, ASeparateOutputMatrixIsUsed) {
  test::GgufDraft separate = draft(shape());
  test::GgufDraft::Tensor output = separate.tensor("token_embd.weight");
  output.name = "output.weight";
  for (float& value : output.values) value = -value;
  separate.tensors.push_back(output);
  const auto model = test::load_draft(separate);
  for (const uint32_t rows : {1u, 3u, 20u}) {
    const auto text = tokens(rows, 1);
    Logits negated = feed(*make(model, default_options()), 0, text, rows);
    for (auto& logits : negated) {
      for (float& logit : logits) logit = -logit;
    }
    expect_same(negated, feed(*make(), 0, text, rows), fmt::format("{} rows", rows));
  }
}

}  // namespace
}  // namespace carat::exec
