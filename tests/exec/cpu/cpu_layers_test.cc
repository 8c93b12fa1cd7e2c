// The first layers alone. A layer whose branches end in norms of zero passes the residual stream on as it is; so a
// model whose last layers are like that gives the logits of what its first layers hand out, and the reference executor
// can judge them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "exec/cpu/cpu_executor.h"
#include "exec/reference/reference_executor.h"
#include "support/executor_runs.h"
#include "support/tiny_model.h"

namespace carat::exec {
namespace {

using test::TinyKind;

constexpr uint32_t kRows = 40;

ExecutorOptions test_options() {
  ExecutorOptions options;
  options.context = 64;
  options.sequences = 2;
  options.chunk = kRows;
  options.outputs = kRows;
  options.threads = 2;
  options.kv_format = quant::Format::kF32;  // no rounding that could send a row to another expert
  return options;
}

// Layers from `first` on leave the residual stream alone.
std::shared_ptr<const model::Model> model_with_idle_end(TinyKind kind, uint32_t first) {
  const test::TinyShape shape = test::tiny_shape(kind);
  test::GgufDraft draft = test::tiny_draft(shape);
  for (uint32_t i = first; i < shape.L; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    for (const char* norm : {"post_attention_norm.weight", "post_ffw_norm.weight", "post_norm.weight"}) {
      if (norm == std::string("post_norm.weight") && shape.P == 0) continue;
      draft.tensor(block + norm).values.assign(shape.d, 0.0f);
    }
    draft.tensor(block + "layer_output_scale.weight").values = {1.0f};
  }
  return test::load_draft(draft);
}

// Final norm, head and soft-cap of one row.
std::vector<float> logits_of(const model::Model& model, std::span<const float> x) {
  const model::Config& config = model.config();
  double squares = 0.0;
  for (const float value : x) squares += double{value} * value;
  const double inverse = 1.0 / std::sqrt(squares / config.d + config.eps);
  std::vector<float> weights(config.d), logits(config.V);
  const model::Matrix& head = model.weights().output;
  for (uint32_t v = 0; v < config.V; ++v) {
    quant::info(head.format).dequantise(head.row(v).data(), weights.data(), config.d);
    double sum = 0.0;
    for (uint32_t c = 0; c < config.d; ++c) sum += x[c] * inverse * model.weights().output_norm[c] * weights[c];
    logits[v] = static_cast<float>(config.softcap * std::tanh(sum / config.softcap));
  }
  return logits;
}

std::vector<Row> rows_of(const std::vector<int32_t>& tokens, uint32_t sequence, uint32_t first, uint32_t count) {
  std::vector<Row> rows;
  for (uint32_t i = first; i < first + count; ++i) rows.push_back({tokens[i], i, sequence, false});
  return rows;
}

class CpuLayersTest : public testing::TestWithParam<TinyKind> {};

TEST_P(CpuLayersTest, HandOutWhatTheReferenceComputes) {
  const uint32_t owners = test::tiny_shape(GetParam()).L - test::tiny_shape(GetParam()).shared;
  for (uint32_t count = 1; count < owners; ++count) {
    const auto model = model_with_idle_end(GetParam(), count);
    const auto tokens = test::random_tokens(model->config().V, kRows, 3);
    const auto reference = make_reference_executor(model, test_options());
    const test::Logits expected = test::feed(*reference, 0, tokens, kRows);
    const auto layers = make_cpu_layers(model, test_options(), count);
    const auto x = layers->run(rows_of(tokens, 0, 0, kRows));
    ASSERT_EQ(x.size(), size_t{kRows} * model->config().d);
    double worst = 0.0;
    for (uint32_t r = 0; r < kRows; ++r) {
      const auto logits = logits_of(*model, x.subspan(size_t{r} * model->config().d, model->config().d));
      for (uint32_t v = 0; v < model->config().V; ++v) {
        worst = std::max(worst, std::abs(double{logits[v]} - expected[r][v]));
      }
    }
    EXPECT_LT(worst, 1e-4) << count << " layers";
  }
}

TEST_P(CpuLayersTest, PiecesSequencesAndRepetitionsDoNotMatter) {
  const auto model = test::tiny_model(GetParam());
  const size_t d = model->config().d;
  const auto tokens = test::random_tokens(model->config().V, kRows, 5);
  const auto layers = make_cpu_layers(model, test_options(), 2);
  const auto whole = layers->run(rows_of(tokens, 0, 0, kRows));
  const std::vector<float> expected(whole.begin(), whole.end());
  for (uint32_t first = 0; first < kRows; first += 8) {
    // The rows of the other sequence are in the same pass, and every pass is run twice, as after a failure.
    auto rows = rows_of(tokens, 1, first, 8);
    const auto others = rows_of(tokens, 0, first, 8);
    rows.insert(rows.begin(), others.begin(), others.end());
    for (int repetition = 0; repetition < 2; ++repetition) {
      const auto x = layers->run(rows);
      for (const size_t at : {size_t{0}, 8 * d}) {
        EXPECT_TRUE(std::equal(expected.begin() + static_cast<ptrdiff_t>(first * d),
                               expected.begin() + static_cast<ptrdiff_t>((first + 8) * d), x.begin() + at))
            << first;
      }
    }
  }
}

TEST_P(CpuLayersTest, CanBeInterrupted) {
  const auto model = test::tiny_model(GetParam());
  std::atomic<bool> cancelled = true;
  ExecutorOptions options = test_options();
  options.cancelled = &cancelled;
  const auto layers = make_cpu_layers(model, options, 2);
  try {
    layers->run(rows_of({1, 2}, 0, 0, 2));
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CpuLayersTest, testing::ValuesIn(test::kTinyKinds), test::tiny_test_name);

}  // namespace
}  // namespace carat::exec
