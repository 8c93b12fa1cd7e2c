// The CPU executor against logits that an independent fp32 implementation computed for the demo models: nearly exact,
// and at least as close as llama.cpp's CPU backend is even when it rounds activations as that does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "exec/cpu/cpu_executor.h"
#include "exec/cpu/simd/instruction_set.h"
#include "parity/demo_model_test.h"
#include "support/reference_figures.h"

namespace carat::exec {
namespace {

using Figures = test::ReferenceFigures;

constexpr size_t kShortPrompt = 800;
constexpr uint32_t kChunk = 256;

class CpuReferences : public testing::TestWithParam<test::DemoLimits> {
 protected:
  void SetUp() override {
    demo_ = test::load_demo_model(GetParam().file);
    if (!demo_) GTEST_SKIP() << "skipped: " << GetParam().file << " is not here";
  }

  Figures measure(const std::string& kernels, size_t shortest, size_t longest) const {
    ExecutorOptions options;
    options.context = 4096;
    options.chunk = options.outputs = kChunk;
    options.kernels = KernelChoices::parse(kernels);
    const auto executor = make_cpu_executor(demo_->model, options);
    return test::measure_references(*executor, demo_->references, kChunk, shortest, longest,
                                    fmt::format("{} cpu {}", GetParam().file, kernels));
  }

  std::optional<test::DemoModel> demo_;
};

TEST_P(CpuReferences, NearlyExactOnEveryInstructionSet) {
  for (const cpu::KernelTable* table : cpu::usable_kernels()) {
    const Figures figures = measure(fmt::format("dot={}", table->name), 0, kShortPrompt);
    // What is left is the rounding of keys and values to halves: about 3e-8, and 7e-6 where it changes an expert.
    EXPECT_GE(figures.agreement(), 0.998);
    EXPECT_LE(figures.mean_divergence(), 2e-5);
  }
}

TEST_P(CpuReferences, NearlyExactOnLongPrompts) {
  const Figures figures = measure("", kShortPrompt, SIZE_MAX);
  EXPECT_GE(figures.agreement(), 0.99);
  EXPECT_LE(figures.mean_divergence(), 2e-5);
}

TEST_P(CpuReferences, AtLeastAsCloseAsLlamaCppWithActivationsOfEightBits) {
  const Figures figures = measure("activations=int8", 0, kShortPrompt);
  EXPECT_GE(figures.agreement(), GetParam().top1);
  EXPECT_LE(figures.mean_divergence(), GetParam().divergence);
}

INSTANTIATE_TEST_SUITE_P(DemoModels, CpuReferences, testing::ValuesIn(test::kLlamaCppLimits), test::demo_test_name);

}  // namespace
}  // namespace carat::exec
