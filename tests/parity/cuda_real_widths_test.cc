// Six layers of each member of the family in its real widths, in the type mixtures of shipped files, against the
// reference executor: the shapes the kernels are tuned for, with all their paddings and head groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "exec/reference/reference_executor.h"
#include "parity/gpu_test.h"
#include "support/synth_model.h"

namespace carat::exec {
namespace {

struct Shape {
  const char* preset;
  const char* recipe;
};

class CudaRealWidths : public test::GpuTest<Shape> {
 protected:
  static std::shared_ptr<const model::Model> six_layers() {
    return test::synth_model(
        {.preset = GetParam().preset, .recipe = GetParam().recipe, .layers = 6, .vocabulary = 4096});
  }
};

TEST_P(CudaRealWidths, CloseToTheReference) {
  constexpr uint32_t kTokens = 20;
  const auto model = six_layers();
  const auto tokens = test::random_tokens(model->config().V, kTokens, 11);
  ExecutorOptions options;
  options.context = 64;
  options.chunk = 32;
  options.outputs = 32;
  const auto reference = make_reference_executor(model, options);
  const test::Logits expected = test::feed(*reference, 0, tokens, kTokens);

  // A flipped expert moves single rows of the mixture of experts by much more than rounding does elsewhere.
  const bool moe = model->config().experts > 0;
  struct Case {
    uint32_t chunk;
    double tolerance;
    const char* kernels = "";
  };
  std::set<double> errors;
  for (const Case& c : {Case{kTokens, moe ? 0.15 : 0.03, moe ? "" : "batch=mma"}, Case{1, moe ? 0.05 : 0.005},
                        Case{7, moe ? 0.05 : 0.005}, Case{kTokens, moe ? 0.15 : 0.03, "batch=gemm"},
                        Case{kTokens, moe ? 0.15 : 0.03, "gemm=mmq,batch=gemm"},
                        Case{kTokens, moe ? 0.15 : 0.06, "gemm=mmq,activations=int8,batch=gemm"}}) {
    if (moe && std::string_view(c.kernels) == "batch=gemm") continue;  // what the plan chooses anyway
    options.kernels = KernelChoices::parse(c.kernels);
    const auto executor = make_cuda_executor(model, options);
    const double error = test::relative_error(test::feed(*executor, 0, tokens, c.chunk), expected);
    std::printf("%s %s chunk %u %s: relative error %.2e\n", GetParam().preset, GetParam().recipe, c.chunk, c.kernels,
                error);
    EXPECT_LT(error, c.tolerance) << "chunk " << c.chunk << " " << c.kernels;
    // Ways that round differently never agree to the last bit: the same error means that one was not taken. (Experts
    // are never batched: for them the first and the fourth case are one.)
    const bool distinct = errors.insert(error).second;
    EXPECT_TRUE(distinct || c.chunk != kTokens || (moe && std::string_view(c.kernels) == "batch=gemm"))
        << c.kernels << " ran as another case did";
  }
}

// Prompts beyond every window, of sequences that share passes or not, with and without graphs.
TEST_P(CudaRealWidths, AttentionByWarpgroups) {
  const auto model = six_layers();
  ExecutorOptions options;
  options.context = 1792;
  options.sequences = 2;
  options.chunk = 512;
  options.outputs = 64;
  const auto prompts = [&](const std::string& kernels) {
    options.kernels = KernelChoices::parse(kernels);
    const auto executor = make_cuda_executor(model, options);
    test::Logits logits;
    for (const uint32_t length : {1700u, 333u, 333u, 333u}) {
      for (uint32_t sequence = 0; sequence < 2; ++sequence) {
        if (length > 1000) executor->truncate(sequence, 0);
        if (executor->length(sequence) + length > options.context) executor->truncate(sequence, length % 100);
        const auto tokens = test::random_tokens(model->config().V, length, length + sequence);
        for (auto& row : test::feed(*executor, sequence, tokens, 500, length - 1)) logits.push_back(std::move(row));
      }
    }
    return logits;
  };
  test::Logits found;
  try {
    found = prompts("attention=warpgroups");
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), ErrorCode::kBadArgument);
    GTEST_SKIP() << "skipped: " << error.what();
  }
  const bool moe = model->config().experts > 0;
  const double error = test::relative_error(prompts("attention=large"), found);
  std::printf("%s: warpgroups and mma.sync differ by %.2e\n", GetParam().preset, error);
  EXPECT_LT(error, moe ? 0.15 : 0.01);
  EXPECT_GT(error, 0.0) << "the same kernels ran";
  EXPECT_EQ(test::relative_error(prompts("attention=warpgroups,launch.prompt=single"), found), 0.0);
  EXPECT_EQ(test::relative_error(prompts("attention=warpgroups,overlap=off"), found), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Family, CudaRealWidths,
                         testing::Values(Shape{"e2b", "q8_0"}, Shape{"e4b", "q4_k_m"}, Shape{"12b", "q4_0"},
                                         Shape{"26b-a4b", "q4_k_m"}, Shape{"31b", "q4_0"}),
                         test::synth_test_name);

}  // namespace
}  // namespace carat::exec
