// A q8_0 cache on the GPU against one on the CPU, which rounds the same way, and against itself cut into other passes;
// on the demo models also what it costs beside fp16.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "exec/cpu/cpu_executor.h"
#include "exec/cuda/cuda_executor.h"
#include "gguf/reader.h"
#include "model/model.h"
#include "parity/logit_error.h"
#include "support/demo_models.h"
#include "support/executor_runs.h"
#include "support/reference_figures.h"
#include "support/tiny_model.h"

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

class QuantisedCache : public testing::TestWithParam<TinyKind> {
 protected:
  void SetUp() override {
    std::string why;
    if (!cuda_available(&why)) GTEST_SKIP() << "skipped: no GPU (" << why << ")";
  }
  // Levels that a slightly different value rounds to are the largest difference between two runs: in models this small
  // about as much as the bf16 of prompt passes.
  static double tolerance() { return 2.0 * test::wide_tolerance(GetParam()); }
};

TEST_P(QuantisedCache, IsCloseToTheCpus) {
  const auto model = test::tiny_model(GetParam(), 256, Format::kQ8_0);
  const auto tokens = test::random_tokens(model->config().V, 150, 3);
  const ExecutorOptions options = quantised_options(384, 128);
  const test::Logits expected = test::feed(*make_cpu_executor(model, options), 0, tokens, 128);
  for (const uint32_t chunk : {128u, 1u, 5u}) {
    const double error = relative_error(test::feed(*make_cuda_executor(model, options), 0, tokens, chunk), expected);
    std::printf("%s chunk %u: relative error %.2e\n", std::string(test::tiny_name(GetParam())).c_str(), chunk, error);
    EXPECT_LT(error, tolerance()) << "chunk " << chunk;
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

INSTANTIATE_TEST_SUITE_P(Kinds, QuantisedCache, testing::ValuesIn(test::kTinyKinds),
                         [](const testing::TestParamInfo<TinyKind>& p) {
                           return std::string(test::tiny_name(p.param));
                         });

struct Limits {
  const char* file;
  double top1, divergence;
};

class QuantisedCacheReferences : public testing::TestWithParam<Limits> {};

// The independent fp32 logits have no rounded cache, so these figures are what the rounding costs. Limits: what another
// engine's CPU backend reaches with an fp16 cache (cuda_references_test.cc), but for the top-1 of the mixture, where a
// level that rounds the other way can flip an expert.
TEST_P(QuantisedCacheReferences, StaysClose) {
  std::string why;
  if (!cuda_available(&why)) GTEST_SKIP() << "skipped: no GPU (" << why << ")";
  const auto path = test::find_demo_model(GetParam().file);
  if (!path) GTEST_SKIP() << "skipped: " << GetParam().file << " is not here";
  const auto model = model::Model::load(gguf::ModelFile::open(*path));
  const auto references = test::load_references(GetParam().file);
  for (const Format format : {Format::kF16, Format::kQ8_0}) {
    ExecutorOptions options = quantised_options(4096, 256);
    options.kv_format = format;
    const auto executor = make_cuda_executor(model, options);
    for (const uint32_t chunk : {256u, 1u}) {
      const std::string what =
          fmt::format("{} cuda cache {} chunk {}", GetParam().file, quant::info(format).name, chunk);
      const size_t longest = chunk == 1 ? 800 : 4096;
      const test::ReferenceFigures figures = test::measure_references(*executor, references, chunk, 0, longest, what);
      EXPECT_GE(figures.agreement(), GetParam().top1) << what;
      EXPECT_LE(figures.mean_divergence(), GetParam().divergence) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DemoModels, QuantisedCacheReferences,
                         testing::Values(Limits{"demo-e-q8_0.gguf", 0.974, 1.0e-4},
                                         Limits{"demo-e-q4_0.gguf", 0.974, 1.4e-4},
                                         Limits{"demo-moe-q8_0.gguf", 0.96, 2.4e-3}),
                         [](const testing::TestParamInfo<Limits>& parameter) {
                           std::string name = parameter.param.file;
                           name.resize(name.find('.'));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace carat::exec
