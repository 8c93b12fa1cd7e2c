// The CPU executor against logits that an independent fp32 implementation computed for the demo models: nearly exact,
// and at least as close as llama.cpp's CPU backend is even when it rounds activations as that does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "exec/cpu/cpu_executor.h"
#include "exec/cpu/instruction_set.h"
#include "gguf/reader.h"
#include "model/model.h"
#include "support/demo_models.h"
#include "support/executor_runs.h"
#include "support/references.h"

namespace carat::exec {
namespace {

using test::Reference;

constexpr size_t kShortPrompt = 800;
constexpr uint32_t kChunk = 256;

// What llama.cpp (node-llama-cpp 3.22.1, CPU) reaches over the prompts under 800 tokens.
struct Limits {
  const char* file;
  double top1;
  double divergence;
};

struct Figures {
  size_t positions = 0, top1 = 0;
  std::vector<double> divergences;

  double agreement() const { return static_cast<double>(top1) / static_cast<double>(positions); }
  double mean_divergence() const {
    double sum = 0.0;
    for (const double d : divergences) sum += d;
    return sum / static_cast<double>(divergences.size());
  }
  double median_divergence() const {
    std::vector<double> sorted = divergences;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// Kullback-Leibler divergence over the reference's top tokens, both sides normalised over these.
double divergence(const float* reference, const uint16_t* ids, const std::vector<float>& logits) {
  double reference_total = 0.0, total = 0.0;
  for (size_t k = 0; k < Reference::kTop; ++k) {
    reference_total += std::exp(double{reference[k]} - reference[0]);
    total += std::exp(double{logits[ids[k]]} - logits[ids[0]]);
  }
  double sum = 0.0;
  for (size_t k = 0; k < Reference::kTop; ++k) {
    const double log_p = double{reference[k]} - reference[0] - std::log(reference_total);
    const double log_q = double{logits[ids[k]]} - logits[ids[0]] - std::log(total);
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return sum;
}

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
    Figures figures;
    for (const Reference& reference : references_) {
      if (reference.tokens.size() < shortest || reference.tokens.size() >= longest) continue;
      executor->truncate(0, 0);
      const test::Logits logits = test::feed(*executor, 0, reference.tokens, kChunk, reference.first);
      for (size_t p = 0; p < logits.size(); ++p) {
        const uint16_t* ids = &reference.top_ids[p * Reference::kTop];
        const auto best = std::max_element(logits[p].begin(), logits[p].end()) - logits[p].begin();
        figures.top1 += best == ids[0];
        figures.divergences.push_back(divergence(&reference.top_logits[p * Reference::kTop], ids, logits[p]));
        ++figures.positions;
      }
    }
    std::printf("%s, %s, %s prompts: %zu positions, top-1 %.4f, mean KL %.2e, median %.2e\n", GetParam().file,
                kernels.empty() ? "default kernels" : kernels.c_str(), shortest == 0 ? "short" : "long",
                figures.positions, figures.agreement(), figures.mean_divergence(), figures.median_divergence());
    return figures;
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
