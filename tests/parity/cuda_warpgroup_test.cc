// Prompt products by warpgroups (sm_90) against the reference executor, and against the products they replace.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/cuda/device/facts.h"
#include "exec/reference/reference_executor.h"
#include "parity/gpu_test.h"

namespace carat::exec {
namespace {

using quant::Format;
using test::prompt_tolerance;
using test::relative_error;

class CudaWarpgroupTest : public test::TinyModelOnGpu {
 protected:
  void SetUp() override {
    test::TinyModelOnGpu::SetUp();
    if (IsSkipped()) return;
    if (!cuda::query_gpu()->warpgroup_products) GTEST_SKIP() << "skipped: no sm_90 or no code for sm_90a";
  }
  static std::vector<int32_t> tokens_for(const model::Model& model) {
    std::vector<int32_t> tokens;
    for (uint32_t i = 0; i < 90; ++i) tokens.push_back(static_cast<int32_t>(i * 7919u % model.config().V));
    return tokens;
  }
  static test::Logits run(const std::shared_ptr<const model::Model>& model, uint32_t chunk,
                          const std::string& kernels) {
    return test::TinyModelOnGpu::run(model, tokens_for(*model), chunk, kernels);
  }
};

TEST_P(CudaWarpgroupTest, DequantisedWeightsAreCloseToTheReference) {
  // Q5_K has no kernel of its own: its products unpack, its experts become bf16.
  for (const Format format : {Format::kQ8_0, Format::kQ4_0, Format::kBF16, Format::kQ4_K, Format::kQ5_K}) {
    const auto model = model_in(format);
    const auto reference = make_reference_executor(model, options());
    const test::Logits expected = test::feed(*reference, 0, tokens_for(*model), 128, 0);
    const bool experts = model->config().experts > 0;
    for (const char* kernels : {"gemm.weights=dequantised", "gemm.weights=resident", "gemm.weights=unpacked"}) {
      for (const uint32_t chunk : {90u, 33u}) {
        const std::string all = std::string(kernels) + (experts ? ",experts=wgmma" : "");
        EXPECT_LT(relative_error(run(model, chunk, all), expected), prompt_tolerance(GetParam()))
            << quant::info(format).name << " " << all << " chunk " << chunk;
      }
    }
  }
}

// The same bf16 weights meet the same bf16 activations: only the order of fp32 sums differs.
TEST_P(CudaWarpgroupTest, DequantisedAndUnpackedAgree) {
  const auto& model = model_;
  const test::Logits unpacked = run(model, 90, "gemm.weights=unpacked");
  EXPECT_LT(relative_error(run(model, 90, "gemm.weights=dequantised"), unpacked), prompt_tolerance(GetParam()));
  if (model->config().experts == 0) return;
  EXPECT_LT(relative_error(run(model, 90, "gemm.weights=unpacked,experts=mma"), unpacked),
            prompt_tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaWarpgroupTest, testing::ValuesIn(test::kTinyKinds), test::tiny_test_name);

}  // namespace
}  // namespace carat::exec
