#include "exec/conformance/executor_conformance.h"

#include <ostream>

#include "support/logit_error.h"

namespace carat::exec {

std::ostream& operator<<(std::ostream& out, const ExecutorUnderTest& executor) { return out << executor.instance; }

std::string conformance_name(const testing::TestParamInfo<ExecutorConformance::ParamType>& parameter) {
  const auto& [kind, executor] = parameter.param;
  return std::string(test::tiny_name(kind)) + "_" + executor.instance;
}

void ExecutorConformance::SetUp() {
  if (const std::string missing = under_test().missing(); !missing.empty()) GTEST_SKIP() << "skipped: " << missing;
  model_ = test::tiny_model(kind(), under_test().widths, under_test().weights);
}

ExecutorOptions ExecutorConformance::default_options() {
  ExecutorOptions options;
  options.context = 384;
  options.sequences = 3;
  options.chunk = 128;
  options.outputs = 128;
  options.threads = 1;
  return options;
}

std::vector<float>& ExecutorConformance::float_values(test::GgufDraft& draft, const std::string& tensor) {
  test::GgufDraft::Tensor& found = draft.tensor(tensor);
  found.type = static_cast<uint32_t>(quant::Format::kF32);
  return found.values;
}

void ExecutorConformance::expect_same(const test::Logits& found, const test::Logits& expected, std::string_view what) {
  if (under_test().same_bits) return expect_identical(found, expected, what);
  ASSERT_EQ(found.size(), expected.size()) << what;
  EXPECT_LT(test::relative_error(found, expected), under_test().between_passes(kind())) << what;
}

void ExecutorConformance::expect_identical(const test::Logits& found, const test::Logits& expected,
                                           std::string_view what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  EXPECT_TRUE(found == expected) << what << ": the logits differ by " << test::relative_error(found, expected);
}

}  // namespace carat::exec
