// Prompts by e4m3 products (sm_90): close to the reference as far as 3 bits of mantissa can be, and really taken.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/cuda/executor/executor_state.h"
#include "exec/reference/reference_executor.h"
#include "parity/gpu_test.h"

namespace carat::cuda {
namespace {

using quant::Format;
using test::relative_error;
using test::TinyKind;

class CudaFp8Test : public test::TinyModelOnGpu {
 protected:
  void SetUp() override {
    test::TinyModelOnGpu::SetUp();
    if (IsSkipped()) return;
    if (!query_gpu()->row_scaled_fp8) GTEST_SKIP() << "skipped: no sm_90, or a library without such products";
  }
  static std::unique_ptr<CudaExecutor> make(const std::shared_ptr<const model::Model>& model,
                                            const std::string& kernels) {
    return make_executor(model, options(kernels), nullptr);
  }
};

// Random weights magnify rounding, and short sums even out little: bf16 is allowed 6% here and has a fifteenth of the
// error. Two outputs that have nothing to do with one another differ by 140%.
TEST_P(CudaFp8Test, PromptsAreCloseAndNotTheSame) {
  for (const Format format : {Format::kQ8_0, Format::kQ4_0, Format::kBF16}) {
    const auto model = model_in(format);
    const auto tokens = test::random_tokens(model->config().V, 90, 3);
    const auto reference = exec::make_reference_executor(model, options());
    const test::Logits expected = test::feed(*reference, 0, tokens, 128);
    const auto fp8 = make(model, "gemm=fp8,batch=gemm"), bf16 = make(model, "gemm=cublas,batch=gemm");
    const test::Logits of_bf16 = test::feed(*bf16, 0, tokens, 90);
    for (const uint32_t chunk : {90u, 33u}) {
      fp8->truncate(0, 0);
      const test::Logits found = test::feed(*fp8, 0, tokens, chunk);
      const double error = relative_error(found, expected);
      print(format, chunk, "gemm=fp8", error);
      print(format, chunk, "gemm=cublas", relative_error(of_bf16, expected));
      EXPECT_LT(error, GetParam() == TinyKind::k26B ? 1.2 : 0.8);
      EXPECT_GT(relative_error(found, of_bf16), 1e-2);
    }
  }
}

TEST_P(CudaFp8Test, LayersHaveE4M3CopiesInsteadOfBf16) {
  const auto executor = make(model_, "gemm=fp8");
  EXPECT_EQ(executor->plan().gemm.kind, GemmKind::kFp8);
  for (const DeviceLayer& layer : executor->weights().layers) {
    for (const GroupKind kind : {GroupKind::kQkv, GroupKind::kAttentionOutput, GroupKind::kGateUp, GroupKind::kDown}) {
      EXPECT_NE(layer[kind].fp8.values, nullptr);
      EXPECT_EQ(layer[kind].bf16, nullptr);
    }
    for (const GroupKind kind : {GroupKind::kPleGate, GroupKind::kPleProject}) {
      if (layer[kind].parts.empty()) continue;
      EXPECT_EQ(layer[kind].fp8.values, nullptr);
      EXPECT_NE(layer[kind].bf16, nullptr);
    }
  }
  EXPECT_NE(executor->weights().head.bf16, nullptr);
}

TEST_P(CudaFp8Test, ReplaysGiveTheSameBits) {
  const auto& model = model_;
  const auto graphs = make(model, "gemm=fp8,launch.prompt=graph"),
             single = make(model, "gemm=fp8,launch.prompt=single");
  for (const uint32_t length : {100u, 97u, 100u, 31u, 100u}) {
    const auto tokens = test::random_tokens(model->config().V, length, length);
    graphs->truncate(0, 0);
    single->truncate(0, 0);
    EXPECT_EQ(relative_error(test::feed(*graphs, 0, tokens, 128, length - 1),
                             test::feed(*single, 0, tokens, 128, length - 1)),
              0.0);
  }
}

// What is generated one token at a time does not go through these products.
TEST_P(CudaFp8Test, DecodeIsAsExactAsEver) {
  const auto& model = model_;
  const auto tokens = test::random_tokens(model->config().V, 40, 8);
  const auto reference = exec::make_reference_executor(model, options());
  const auto fp8 = make(model, "gemm=fp8");
  EXPECT_LT(relative_error(test::feed(*fp8, 0, tokens, 1), test::feed(*reference, 0, tokens, 1)),
            test::gemv_tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaFp8Test, testing::ValuesIn(test::kTinyKinds), test::tiny_test_name);

}  // namespace
}  // namespace carat::cuda
