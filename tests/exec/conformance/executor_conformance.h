#pragma once

// What every executor promises (src/exec/executor.h), as tests that do not know which executor they run. An executor is
// added by instantiating the suite with a description of it, as reference_conformance.cc does.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "exec/executor.h"
#include "support/executor_runs.h"
#include "support/gguf_draft.h"
#include "support/tiny_model.h"

namespace carat::exec {

using MakeExecutor =
    std::function<std::unique_ptr<Executor>(std::shared_ptr<const model::Model>, const ExecutorOptions&)>;

struct ExecutorUnderTest {
  std::string instance;       // its part of the tests' names
  std::string executor_name;  // what Executor::name() says
  MakeExecutor make;
  // What the machine lacks to run it; empty where nothing is missing.
  std::function<std::string()> missing = [] { return std::string(); };

  // The model it is tested with.
  quant::Format weights = quant::Format::kQ8_0;
  uint32_t widths = 32;
  quant::Format cache = quant::Format::kF16;  // what options() says of it when F16 was asked for

  // The lengths and sizes at which it changes how it computes.
  uint32_t prompt = 45;  // tokens; more than five windows of the tiny models
  std::vector<uint32_t> pass_sizes = {1, 3, 7, 8, 20};

  // Whether a row has the same bits in every pass: Executor::rows_are_independent().
  bool same_bits = true;
  // The largest relative_error() where it has not, between two ways to divide rows among passes.
  std::function<double(test::TinyKind)> between_passes = [](test::TinyKind) { return 0.0; };
  // The largest relative_error() from the reference executor's logits, in passes of so many rows.
  std::function<double(test::TinyKind, uint32_t rows)> from_reference;
};
std::ostream& operator<<(std::ostream& out, const ExecutorUnderTest& executor);

class ExecutorConformance : public testing::TestWithParam<std::tuple<test::TinyKind, ExecutorUnderTest>> {
 protected:
  void SetUp() override;

  static test::TinyKind kind() { return std::get<0>(GetParam()); }
  static const ExecutorUnderTest& under_test() { return std::get<1>(GetParam()); }
  static ExecutorOptions default_options();

  std::unique_ptr<Executor> make() const { return make(default_options()); }
  std::unique_ptr<Executor> make(const ExecutorOptions& options) const { return make(model_, options); }
  static std::unique_ptr<Executor> make(std::shared_ptr<const model::Model> model, const ExecutorOptions& options) {
    return under_test().make(std::move(model), options);
  }
  // The model the executor is tested with, for changes to it, and with them.
  static test::TinyShape shape() { return test::tiny_shape(kind(), under_test().widths); }
  static test::GgufDraft draft(const test::TinyShape& shape) { return test::tiny_draft(shape, under_test().weights); }
  // A tensor of the draft as floats, which hold values that quantised blocks cannot.
  static std::vector<float>& float_values(test::GgufDraft& draft, const std::string& tensor);

  std::vector<int32_t> tokens(size_t count, uint64_t seed) const {
    return test::random_tokens(model_->config().V, count, seed);
  }
  // That rows divided among passes in two ways have the same logits: bit for bit, or as near as the executor says.
  static void expect_same(const test::Logits& found, const test::Logits& expected, std::string_view what);
  // That the same passes over the same rows give the same bits, which all executors promise.
  static void expect_identical(const test::Logits& found, const test::Logits& expected, std::string_view what);

  std::shared_ptr<const model::Model> model_;
};

// "e2b_avx2": the model's kind and the executor's instance.
std::string conformance_name(const testing::TestParamInfo<ExecutorConformance::ParamType>& parameter);

}  // namespace carat::exec
