// The CPU executor against logits that an independent fp32 implementation computed for the demo models: nearly exact,
// and at least as close as llama.cpp's CPU backend is even when it rounds activations as that does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "exec/cpu/cpu_executor.h"
#include "exec/cpu/instruction_set.h"
#include "gguf/reader.h"
#include "model/model.h"
#include "support/demo_models.h"
#include "support/reference_figures.h"

namespace carat::exec {
namespace {

using Figures = test::ReferenceFigures;
using test::Reference;

constexpr size_t kShortPrompt = 800;
constexpr uint32_t kChunk = 256;

// What llama.cpp (node-llama-cpp 3.22.1, CPU) reaches over the prompts under 800 tokens.
struct Limits {
  const char* file;
  double top1;
  double divergence;
};

class CpuReferences : public testing::TestWithParam<Limits> {
 protected:
  void SetUp() override {
    const auto path = test::find_demo_model(GetParam().file);
    if (!path) GTEST_SKIP() << "skipped: " << GetParam().file << " is not here";
    model_ = model::Model::load(gguf::ModelFile::open(*path));
    references_ = test::load_references(GetParam().file);
  }

  Figures measure(const std::string& kernels, size_t shortest, size_t longest) const {
    ExecutorOptions options;
    options.context = 4096;
    options.chunk = options.outputs = kChunk;
    options.kernels = KernelChoices::parse(kernels);
    const auto executor = make_cpu_executor(model_, options);
    return test::measure_references(*executor, references_, kChunk, shortest, longest,
                                    fmt::format("{} cpu {}", GetParam().file, kernels));
  }

  std::shared_ptr<const model::Model> model_;
  std::vector<Reference> references_;
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

std::string file_name(const testing::TestParamInfo<Limits>& parameter) {
  std::string name = parameter.param.file;
  name.resize(name.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(DemoModels, CpuReferences,
                         testing::Values(Limits{"demo-e-q8_0.gguf", 0.974, 1.0e-4},
                                         Limits{"demo-e-q4_0.gguf", 0.982, 1.4e-4},
                                         Limits{"demo-moe-q8_0.gguf", 0.979, 2.4e-3}),
                         file_name);

}  // namespace
}  // namespace carat::exec
