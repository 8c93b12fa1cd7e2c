// Prompts by e4m3 products (sm_90): close to the reference as far as 3 bits of mantissa can be, and really taken.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/cuda/cuda_executor.h"
#include "exec/cuda/executor_state.h"
#include "exec/reference/reference_executor.h"
#include "parity/logit_error.h"
#include "support/executor_runs.h"
#include "support/tiny_model.h"

namespace carat::cuda {
namespace {

using quant::Format;
using test::relative_error;
using test::TinyKind;

class CudaFp8Test : public testing::TestWithParam<TinyKind> {
 protected:
  void SetUp() override {
    const auto gpu = query_gpu();
    if (!gpu) GTEST_SKIP() << "skipped: no GPU";
    if (!gpu->row_scaled_fp8) GTEST_SKIP() << "skipped: no sm_90, or a library without such products";
  }
  static exec::ExecutorOptions options_for(const std::string& kernels) {
    exec::ExecutorOptions options;
    options.context = 384;
    options.chunk = 128;
    options.outputs = 128;
    options.kernels = exec::KernelChoices::parse(kernels);
    return options;
  }
  static std::unique_ptr<CudaExecutor> make(const std::shared_ptr<const model::Model>& model,
                                            const std::string& kernels) {
    return make_executor(model, options_for(kernels), nullptr);
  }
};

// Random weights magnify rounding, and short sums even out little: bf16 is allowed 6% here and has a fifteenth of the
// error. Two outputs that have nothing to do with one another differ by 140%.
TEST_P(CudaFp8Test, PromptsAreCloseAndNotTheSame) {
  for (const Format format : {Format::kQ8_0, Format::kQ4_0, Format::kBF16}) {
    const auto model = test::tiny_model(GetParam(), 32, format);
    const auto tokens = test::random_tokens(model->config().V, 90, 3);
    const auto reference = exec::make_reference_executor(model, options_for(""));
    const test::Logits expected = test::feed(*reference, 0, tokens, 128);
    const auto fp8 = make(model, "gemm=fp8,batch=gemm"), bf16 = make(model, "gemm=cublas,batch=gemm");
    const test::Logits of_bf16 = test::feed(*bf16, 0, tokens, 90);
    for (const uint32_t chunk : {90u, 33u}) {
      fp8->truncate(0, 0);
      const test::Logits found = test::feed(*fp8, 0, tokens, chunk);
      const double error = relative_error(found, expected);
      std::printf("%s %s chunk %u: relative error %.3f, bf16 %.3f\n", std::string(test::tiny_name(GetParam())).c_str(),
                  std::string(quant::info(format).name).c_str(), chunk, error, relative_error(of_bf16, expected));
      EXPECT_LT(error, GetParam() == TinyKind::k26B ? 1.2 : 0.8);
      EXPECT_GT(relative_error(found, of_bf16), 1e-2);
    }
  }
}

TEST_P(CudaFp8Test, LayersHaveE4M3CopiesInsteadOfBf16) {
  const auto executor = make(test::tiny_model(GetParam(), 32, Format::kQ8_0), "gemm=fp8");
  EXPECT_EQ(executor->plan().gemm.kind, GemmKind::kFp8);
  for (const DeviceLayer& layer : executor->weights().layers) {
    for (const MatrixGroup* group : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      EXPECT_TRUE(group->has_fp8());
      EXPECT_EQ(group->bf16, nullptr);
    }
    if (layer.proj.parts.empty()) continue;
    EXPECT_FALSE(layer.proj.has_fp8() || layer.inp_gate.has_fp8());
    EXPECT_NE(layer.proj.bf16, nullptr);
  }
  EXPECT_NE(executor->weights().head.bf16, nullptr);
}

TEST_P(CudaFp8Test, ReplaysGiveTheSameBits) {
  const auto model = test::tiny_model(GetParam(), 32, Format::kQ8_0);
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
  const auto model = test::tiny_model(GetParam(), 32, Format::kQ8_0);
  const auto tokens = test::random_tokens(model->config().V, 40, 8);
  const auto reference = exec::make_reference_executor(model, options_for(""));
  const auto fp8 = make(model, "gemm=fp8");
  EXPECT_LT(relative_error(test::feed(*fp8, 0, tokens, 1), test::feed(*reference, 0, tokens, 1)),
            test::narrow_tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaFp8Test, testing::ValuesIn(test::kTinyKinds),
                         [](const testing::TestParamInfo<TinyKind>& p) {
                           return std::string(test::tiny_name(p.param));
                         });

}  // namespace
}  // namespace carat::cuda
