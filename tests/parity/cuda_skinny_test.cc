// Batched decode steps of the CUDA executor: sequences that run together at different positions give what each gives
// alone, captured as a graph or not.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "parity/gpu_test.h"
#include "support/synth_model.h"

namespace carat::exec {
namespace {

using quant::Format;
using test::relative_error;
using test::TinyKind;

constexpr uint32_t kSteps = 4;

class CudaBatchTest : public test::TinyModelOnGpu {
 protected:
  static ExecutorOptions options_for(uint32_t sequences, const std::string& kernels = "") {
    ExecutorOptions options;
    options.context = 160;
    options.sequences = sequences;
    options.chunk = 64;
    options.outputs = 1;
    options.kernels = KernelChoices::parse(kernels);
    return options;
  }
  // Beside copies of the weights the plan would give larger steps to matrix products. Experts always run by them.
  static std::string batched(const std::string& more = "") {
    if (GetParam() == TinyKind::k26B) return more;
    return more.empty() ? "batch=mma" : "batch=mma," + more;
  }
  static uint32_t prompt_length(uint32_t sequence) { return 1 + sequence * 17 % 90; }
  static std::vector<int32_t> text_of(uint32_t V, uint32_t sequence) {
    return test::random_tokens(V, prompt_length(sequence) + kSteps, 100 + sequence);
  }

  // The logits of the last kSteps tokens of every sequence, one sequence after the other.
  static test::Logits together(const std::shared_ptr<const model::Model>& model, uint32_t sequences,
                               const std::string& kernels) {
    const auto executor = make_cuda_executor(model, options_for(sequences, kernels));
    std::vector<test::Logits> results(sequences);
    for (uint32_t s = 0; s < sequences; ++s) {
      const auto text = text_of(model->config().V, s);
      test::feed(*executor, s, std::span(text).first(prompt_length(s)), 64, prompt_length(s) - 1);
    }
    for (uint32_t step = 0; step < kSteps; ++step) {
      std::vector<Row> rows;
      for (uint32_t s = 0; s < sequences; ++s) {
        const uint32_t position = prompt_length(s) + step;
        rows.push_back({text_of(model->config().V, s)[position], position, s, true});
      }
      executor->forward(rows);
      EXPECT_EQ(executor->outputs(), sequences);
      for (uint32_t s = 0; s < sequences; ++s) {
        const auto logits = executor->logits(s);
        results[s].emplace_back(logits.begin(), logits.end());
        std::vector<Candidate> best, expected;
        executor->best(s, 5, best);
        select_best(results[s].back(), 5, expected);
        for (size_t i = 0; i < 5; ++i) EXPECT_EQ(best[i].token, expected[i].token);
      }
    }
    test::Logits all;
    for (auto& logits : results) all.insert(all.end(), logits.begin(), logits.end());
    return all;
  }

  static test::Logits alone(const std::shared_ptr<const model::Model>& model, uint32_t sequences) {
    const auto executor = make_cuda_executor(model, options_for(1));
    test::Logits all;
    for (uint32_t s = 0; s < sequences; ++s) {
      executor->truncate(0, 0);
      const auto text = text_of(model->config().V, s);
      test::feed(*executor, 0, std::span(text).first(prompt_length(s)), 64, prompt_length(s) - 1);
      for (auto& row : test::feed(*executor, 0, std::span(text).subspan(prompt_length(s)), 1)) {
        all.push_back(std::move(row));
      }
    }
    return all;
  }
};

TEST_P(CudaBatchTest, RaggedBatchesEqualSequencesRunAlone) {
  const auto& model = model_;
  const test::Logits separate = alone(model, 64);
  for (const uint32_t sequences : {5u, 9u, 17u, 33u, 64u}) {
    const test::Logits expected(separate.begin(), separate.begin() + sequences * kSteps);
    const double error = relative_error(together(model, sequences, batched()), expected);
    std::printf("%s %u sequences: relative error %.2e\n", std::string(test::tiny_name(GetParam())).c_str(), sequences,
                error);
    const bool wide = GetParam() == TinyKind::k26B && sequences > 8;
    EXPECT_LT(error, wide ? test::prompt_tolerance(GetParam()) : test::skinny_tolerance(GetParam()));
  }
}

TEST_P(CudaBatchTest, SwitchesDoNotMatter) {
  const auto& model = model_;
  const test::Logits graph = together(model, 19, batched());
  EXPECT_EQ(relative_error(together(model, 19, batched("launch=single")), graph), 0.0) << "graph or not: the same";
  EXPECT_EQ(relative_error(together(model, 19, batched("overlap=off")), graph), 0.0)
      << "overlap changes when, not what";
  const test::Logits products = together(model, 19, "batch=gemm");
  EXPECT_LT(relative_error(products, graph), test::prompt_tolerance(GetParam()));
  EXPECT_EQ(relative_error(together(model, 19, "batch=gemm,launch=single"), products), 0.0) << "graph or not: the same";
  EXPECT_EQ(relative_error(together(model, 19, "batch=gemm,overlap=off"), products), 0.0);
}

// More sequences than the batched pass has rows for.
TEST_P(CudaBatchTest, LargeBatchesEqualSequencesRunAlone) {
  const auto& model = model_;
  const test::Logits found = together(model, 70, "");
  EXPECT_LT(relative_error(found, alone(model, 70)), test::prompt_tolerance(GetParam()));
  EXPECT_EQ(relative_error(together(model, 70, "launch=single"), found), 0.0) << "graph or not: the same";
}

TEST_P(CudaBatchTest, EveryFormat) {
  if (GetParam() == TinyKind::k26B) GTEST_SKIP() << "expert layers run by matrix products";
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16, Format::kQ4_0, Format::kQ5_1, Format::kQ4_K,
                              Format::kQ5_K, Format::kQ6_K}) {
    const auto model = model_in(format);
    const double error = print(format, 11, batched(), relative_error(together(model, 11, batched()), alone(model, 11)));
    EXPECT_LT(error, test::skinny_tolerance(GetParam())) << quant::info(format).name;
  }
}

// Six layers in the widths of the family's members: those that kernels for several steps of a layer at once are made
// for. They change what is rounded where, and nothing else.
TEST_P(CudaBatchTest, FusedKernelsOfRealWidths) {
  if (GetParam() != TinyKind::kE2B && GetParam() != TinyKind::kE4B) GTEST_SKIP() << "no per-layer embeddings";
  const auto model = test::synth_model(
      {.preset = std::string(test::tiny_name(GetParam())), .recipe = "q8_0-pure", .layers = 6, .vocabulary = 4096});
  constexpr uint32_t kSequences = 21;
  const test::Logits expected = alone(model, kSequences);
  for (const std::string way : {"batch=mma", "batch=gemm"}) {
    std::vector<double> errors;
    for (const char* more : {",batch.heads=separate,batch.ple=products", ",batch.heads=attention,batch.ple=products",
                             ",batch.heads=separate,batch.ple=cluster", ""}) {
      errors.push_back(relative_error(together(model, kSequences, way + more), expected));
      std::printf("%s%s: relative error %.2e\n", way.c_str(), more, errors.back());
      EXPECT_LT(errors.back(), 1.5 * errors.front()) << way << more;
    }
    EXPECT_LT(errors.front(), way == "batch=mma" ? 0.005 : 0.03);
    EXPECT_NE(errors.front(), errors.back()) << "the same to the last bit: the kernels did not run";
    EXPECT_EQ(relative_error(together(model, kSequences, way + ",launch=single"), together(model, kSequences, way)),
              0.0)
        << "graph or not: the same";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaBatchTest, testing::ValuesIn(test::kTinyKinds), test::tiny_test_name);

}  // namespace
}  // namespace carat::exec
