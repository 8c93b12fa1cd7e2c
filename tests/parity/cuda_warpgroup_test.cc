// Prompt products by warpgroups (sm_90) against the reference executor, and against the products they replace.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/cuda/cuda_executor.h"
#include "exec/cuda/device/facts.h"
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

class CudaWarpgroupTest : public testing::TestWithParam<TinyKind> {
 protected:
  void SetUp() override {
    const auto gpu = cuda::query_gpu();
    if (!gpu) GTEST_SKIP() << "skipped: no GPU";
    if (!gpu->warpgroup_products) GTEST_SKIP() << "skipped: no sm_90 or no code for sm_90a";
  }
  static ExecutorOptions options_for(const std::string& kernels) {
    ExecutorOptions options;
    options.context = 384;
    options.chunk = 128;
    options.outputs = 128;
    options.kernels = KernelChoices::parse(kernels);
    return options;
  }
  static std::vector<int32_t> tokens_for(const model::Model& model) {
    std::vector<int32_t> tokens;
    for (uint32_t i = 0; i < 90; ++i) tokens.push_back(static_cast<int32_t>(i * 7919u % model.config().V));
    return tokens;
  }
  static test::Logits run(const std::shared_ptr<const model::Model>& model, uint32_t chunk,
                          const std::string& kernels) {
    const auto executor = make_cuda_executor(model, options_for(kernels));
    return test::feed(*executor, 0, tokens_for(*model), chunk, 0);
  }
};

TEST_P(CudaWarpgroupTest, DequantisedWeightsAreCloseToTheReference) {
  struct Case {
    Format format;
    uint32_t widths;
  };
  // Q5_K has no kernel of its own: its products unpack, its experts become bf16.
  for (const Case& c : {Case{Format::kQ8_0, 32}, Case{Format::kQ4_0, 32}, Case{Format::kBF16, 32},
                        Case{Format::kQ4_K, 256}, Case{Format::kQ5_K, 256}}) {
    const auto model = test::tiny_model(GetParam(), c.widths, c.format);
    const auto reference = make_reference_executor(model, options_for(""));
    const test::Logits expected = test::feed(*reference, 0, tokens_for(*model), 128, 0);
    const bool experts = model->config().experts > 0;
    for (const char* kernels : {"gemm.weights=dequantised", "gemm.weights=resident", "gemm.weights=unpacked"}) {
      for (const uint32_t chunk : {90u, 33u}) {
        const std::string all = std::string(kernels) + (experts ? ",experts=wgmma" : "");
        EXPECT_LT(relative_error(run(model, chunk, all), expected), wide_tolerance(GetParam()))
            << quant::info(c.format).name << " " << all << " chunk " << chunk;
      }
    }
  }
}

// The same bf16 weights meet the same bf16 activations: only the order of fp32 sums differs.
TEST_P(CudaWarpgroupTest, DequantisedAndUnpackedAgree) {
  const auto model = test::tiny_model(GetParam(), 32, Format::kQ8_0);
  const test::Logits unpacked = run(model, 90, "gemm.weights=unpacked");
  EXPECT_LT(relative_error(run(model, 90, "gemm.weights=dequantised"), unpacked), wide_tolerance(GetParam()));
  if (model->config().experts == 0) return;
  EXPECT_LT(relative_error(run(model, 90, "gemm.weights=unpacked,experts=mma"), unpacked), wide_tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaWarpgroupTest, testing::ValuesIn(test::kTinyKinds),
                         [](const testing::TestParamInfo<TinyKind>& p) {
                           return std::string(test::tiny_name(p.param));
                         });

}  // namespace
}  // namespace carat::exec
