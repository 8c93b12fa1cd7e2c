// A q8_0 cache on the GPU against one on the CPU, which rounds the same way, and against itself cut into other passes;
// on the demo models also what it costs beside fp16.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/cpu/cpu_executor.h"
#include "parity/demo_model_test.h"
#include "parity/gpu_test.h"
#include "support/reference_figures.h"

namespace carat::exec {
namespace {

using quant::Format;
using test::relative_error;
using test::TinyKind;

ExecutorOptions quantised_options(uint32_t context, uint32_t chunk) {
  ExecutorOptions options;
  options.context = context;
  options.chunk = chunk;
  options.outputs = chunk;
  options.kv_format = Format::kQ8_0;
  return options;
}

class QuantisedCache : public test::TinyModelOnGpu {
 protected:
  // Levels that a slightly different value rounds to are the largest difference between two runs: in models this small
  // about as much as the bf16 of prompt passes.
  static double tolerance() { return 2.0 * test::prompt_tolerance(GetParam()); }
};

TEST_P(QuantisedCache, IsCloseToTheCpus) {
  const auto model = test::tiny_model(GetParam(), 256, Format::kQ8_0);
  const auto tokens = test::random_tokens(model->config().V, 150, 3);
  const ExecutorOptions options = quantised_options(384, 128);
  const test::Logits expected = test::feed(*make_cpu_executor(model, options), 0, tokens, 128);
  for (const uint32_t chunk : {128u, 1u, 5u}) {
    const double error = relative_error(test::feed(*make_cuda_executor(model, options), 0, tokens, chunk), expected);
    EXPECT_LT(print(Format::kQ8_0, chunk, "", error), tolerance()) << "chunk " << chunk;
  }
}

TEST_P(QuantisedCache, ChunksDoNotMatter) {
  const auto model = test::tiny_model(GetParam(), 256, Format::kQ8_0);
  const auto tokens = test::random_tokens(model->config().V, 300, 5);
  const ExecutorOptions options = quantised_options(384, 128);
  const test::Logits whole = test::feed(*make_cuda_executor(model, options), 0, tokens, 100);
  for (const uint32_t chunk : {1u, 7u, 33u, 127u}) {
    EXPECT_LT(relative_error(test::feed(*make_cuda_executor(model, options), 0, tokens, chunk), whole), tolerance())
        << chunk;
  }
}

TEST_P(QuantisedCache, LayersOnTheCpuKeepTheirsQuantisedToo) {
  const auto model = test::tiny_model(GetParam(), 256, Format::kQ8_0);
  const auto tokens = test::random_tokens(model->config().V, 60, 7);
  ExecutorOptions options = quantised_options(384, 128);
  const test::Logits expected = test::feed(*make_cuda_executor(model, options), 0, tokens, 60);
  options.gpu_layers = model->config().L - 1;
  EXPECT_LT(relative_error(test::feed(*make_cuda_executor(model, options), 0, tokens, 60), expected), tolerance());
}

INSTANTIATE_TEST_SUITE_P(Kinds, QuantisedCache, testing::ValuesIn(test::kTinyKinds), test::tiny_test_name);

class QuantisedCacheReferences : public test::GpuTest<test::DemoLimits> {};

// The independent fp32 logits have no rounded cache, so these figures are what the rounding costs. Limits: what another
// engine's CPU backend reaches with an fp16 cache (cuda_references_test.cc), but for the top-1 of the mixture, where a
// level that rounds the other way can flip an expert.
TEST_P(QuantisedCacheReferences, StaysClose) {
  const auto demo = test::load_demo_model(GetParam().file);
  if (!demo) GTEST_SKIP() << "skipped: " << GetParam().file << " is not here";
  for (const Format format : {Format::kF16, Format::kQ8_0}) {
    ExecutorOptions options = quantised_options(4096, 256);
    options.kv_format = format;
    const auto executor = make_cuda_executor(demo->model, options);
    for (const uint32_t chunk : {256u, 1u}) {
      const std::string what =
          fmt::format("{} cuda cache {} chunk {}", GetParam().file, quant::info(format).name, chunk);
      const size_t longest = chunk == 1 ? 800 : 4096;
      const test::ReferenceFigures figures =
          test::measure_references(*executor, demo->references, chunk, 0, longest, what);
      EXPECT_GE(figures.agreement(), GetParam().top1) << what;
      EXPECT_LE(figures.mean_divergence(), GetParam().divergence) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DemoModels, QuantisedCacheReferences,
                         testing::Values(test::DemoLimits{"demo-e-q8_0.gguf", 0.974, 1.0e-4},
                                         test::DemoLimits{"demo-e-q4_0.gguf", 0.974, 1.4e-4},
                                         test::DemoLimits{"demo-moe-q8_0.gguf", 0.96, 2.4e-3}),
                         test::demo_test_name);

}  // namespace
}  // namespace carat::exec
