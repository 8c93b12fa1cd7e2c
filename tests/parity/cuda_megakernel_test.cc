// The decode megakernel (decode=token) against the matrix-vector kernels it replaces for single rows, and against the
// reference executor: small models whose heads have the real sizes, every weight format, several tiles of keys, windows
// that move, sequences that take turns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/reference/reference_executor.h"
#include "parity/gpu_test.h"
#include "support/synth_model.h"

namespace carat::exec {
namespace {

ExecutorOptions options_for(const std::string& kernels) {
  ExecutorOptions options;
  options.context = 512;
  options.sequences = 2;
  options.chunk = 64;
  options.outputs = 64;
  options.kernels = KernelChoices::parse(kernels);
  return options;
}

double relative_difference(std::span<const float> a, std::span<const float> b) {
  double difference = 0.0, size = 0.0;
  for (size_t t = 0; t < a.size(); ++t) {
    difference += (a[t] - b[t]) * (a[t] - b[t]);
    size += a[t] * a[t];
  }
  return std::sqrt(difference / size);
}

class CudaMegakernel : public test::GpuTest<const char*> {
 protected:
  static std::shared_ptr<const model::Model> synth(const std::string& recipe) {
    return test::synth_model({.preset = GetParam(), .recipe = recipe});
  }
};

TEST_P(CudaMegakernel, EveryFormatIsCloseToTheReference) {
  std::vector<std::string> recipes = {"q8_0-pure", "q4_0-pure", "q4_k-pure", "q4_k_m", "q4_0"};
  // The small experts' rows are too short for the larger blocks and would become floats, which the kernel leaves to
  // others.
  const bool experts = std::string(GetParam()) == "tiny-26b-a4b";
  if (!experts) recipes.insert(recipes.end(), {"q5_k-pure", "q6_k-pure", "bf16", "f16", "f32"});
  for (const std::string& recipe : recipes) {
    const auto model = synth(recipe);
    const auto tokens = test::random_tokens(model->config().V, 12, 5);
    const auto reference = make_reference_executor(model, options_for(""));
    const test::Logits expected = test::feed(*reference, 0, tokens, 12);
    const auto executor = make_cuda_executor(model, options_for("decode=token"));
    const double error = test::relative_error(test::feed(*executor, 0, tokens, 1), expected);
    std::printf("%s %s: relative error %.2e\n", GetParam(), recipe.c_str(), error);
    EXPECT_LT(error, experts ? 0.05 : 0.005) << recipe;
  }
}

// 300 tokens: five tiles of keys in global layers, windows that have moved on in the others.
TEST_P(CudaMegakernel, EqualsTheOtherKernelsAtEveryPosition) {
  const auto model = synth("q8_0");
  const auto tokens = test::random_tokens(model->config().V, 300, 7);
  const auto separate = make_cuda_executor(model, options_for("decode=matvec"));
  const test::Logits expected = test::feed(*separate, 0, tokens, 1);
  for (const std::string launch : {"graph", "single"}) {
    const auto executor = make_cuda_executor(model, options_for("decode=token,launch=" + launch));
    const double error = test::relative_error(test::feed(*executor, 0, tokens, 1), expected);
    EXPECT_LT(error, model->config().experts > 0 ? 0.05 : 0.005) << launch;
  }
}

TEST_P(CudaMegakernel, GoesOnAfterAPromptAndBetweenSequences) {
  const auto model = synth("q8_0");
  const auto first = test::random_tokens(model->config().V, 150, 9);
  const auto second = test::random_tokens(model->config().V, 150, 10);
  const auto alone = make_cuda_executor(model, options_for("decode=matvec"));
  const auto together = make_cuda_executor(model, options_for("decode=token"));
  std::vector<double> errors;
  for (Executor* executor : {alone.get(), together.get()}) {
    test::feed(*executor, 0, std::vector<int32_t>(first.begin(), first.begin() + 100), 50);
    test::feed(*executor, 1, std::vector<int32_t>(second.begin(), second.begin() + 70), 50);
  }
  for (uint32_t i = 0; i < 20; ++i) {
    for (const uint32_t sequence : {0u, 1u}) {
      const Row row{sequence == 0 ? first[100 + i] : second[70 + i], (sequence == 0 ? 100 : 70) + i, sequence, true};
      alone->forward({&row, 1});
      together->forward({&row, 1});
      errors.push_back(relative_difference(alone->logits(0), together->logits(0)));
    }
  }
  EXPECT_LT(*std::max_element(errors.begin(), errors.end()), model->config().experts > 0 ? 0.15 : 0.01);
}

// Blocks that have several tiles of a long cache each, and tiles that end anywhere.
TEST_P(CudaMegakernel, EqualsTheOtherKernelsAtDepth) {
  const auto model = synth("q8_0");
  const bool one_kv_head = model->config().layers[model->config().n_kv - 1].Hkv == 1;
  const uint32_t depth = one_kv_head ? 33900 : 17100;  // more than four tiles for each of 132 or 66 blocks
  ExecutorOptions options = options_for("decode=matvec");
  options.context = depth + 200;
  options.sequences = 1;
  options.chunk = 2048;
  const auto separate = make_cuda_executor(model, options);
  options.kernels = KernelChoices::parse("decode=token");
  const auto executor = make_cuda_executor(model, options);
  const auto tokens = test::random_tokens(model->config().V, depth + 70, 13);
  for (Executor* reader : {separate.get(), executor.get()}) {
    for (uint32_t first = 0; first < depth; first += options.chunk) {
      std::vector<Row> rows;
      for (uint32_t i = first; i < std::min(first + options.chunk, depth); ++i)
        rows.push_back({tokens[i], i, 0, false});
      reader->forward(rows);
    }
  }
  std::vector<double> errors;
  for (uint32_t i = depth; i < depth + 70; ++i) {
    const Row row{tokens[i], i, 0, true};
    separate->forward({&row, 1});
    executor->forward({&row, 1});
    errors.push_back(relative_difference(separate->logits(0), executor->logits(0)));
  }
  EXPECT_LT(*std::max_element(errors.begin(), errors.end()), model->config().experts > 0 ? 0.15 : 0.01);
}

TEST_P(CudaMegakernel, GivesTheSameLogitsEveryTime) {
  const auto model = synth("q4_0");
  const auto tokens = test::random_tokens(model->config().V, 100, 11);
  const auto executor = make_cuda_executor(model, options_for("decode=token"));
  const test::Logits once = test::feed(*executor, 0, tokens, 1);
  executor->truncate(0, 0);
  EXPECT_EQ(test::relative_error(test::feed(*executor, 0, tokens, 1), once), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Family, CudaMegakernel,
                         testing::Values("tiny-e2b", "tiny-e4b", "tiny-12b", "tiny-26b-a4b", "tiny-31b"),
                         test::synth_test_name);

}  // namespace
}  // namespace carat::exec
