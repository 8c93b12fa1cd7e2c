// The CPU executor against the reference executor on tiny models of every kind, in every format that quantises, over
// prompts that cross the window several times.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "exec/cpu/cpu_executor.h"
#include "exec/cpu/simd/instruction_set.h"
#include "exec/reference/reference_executor.h"
#include "model/writing/synth.h"
#include "support/executor_runs.h"
#include "support/files.h"
#include "support/random.h"
#include "support/tiny_model.h"

namespace carat::exec {
namespace {

using quant::Format;
using test::feed;
using test::Logits;
using test::TinyKind;

struct Setting {
  Format weights;
  uint32_t widths;
  const char* activations;
  Format cache;
  double tolerance;  // of relative_error()
};

// Tolerances are about three times the largest error seen.
constexpr Setting kSettings[] = {
    {Format::kF32, 16, "int16", Format::kF32, 4e-6},   {Format::kF16, 16, "int16", Format::kF32, 4e-6},
    {Format::kBF16, 16, "int16", Format::kF32, 4e-6},  {Format::kF32, 16, "int16", Format::kF16, 3e-3},
    {Format::kQ8_0, 32, "int16", Format::kF32, 1e-3},  {Format::kQ4_0, 32, "int16", Format::kF32, 1e-3},
    {Format::kQ5_0, 32, "int16", Format::kF32, 1e-3},  {Format::kQ4_K, 256, "int16", Format::kF32, 1e-3},
    {Format::kQ5_K, 256, "int16", Format::kF32, 1e-3}, {Format::kQ6_K, 256, "int16", Format::kF32, 1e-3},
    {Format::kF32, 256, "int16", Format::kQ8_0, 0.1},  {Format::kQ4_K, 256, "int16", Format::kQ8_0, 0.1},
    {Format::kQ8_0, 32, "int8", Format::kF16, 0.12},   {Format::kQ4_K, 256, "int8", Format::kF16, 0.12},
};

// Root mean square of the differences over that of the expected logits, of the position in the middle when positions
// are sorted by it: in a model with random weights a single row may go astray when rounding changes an expert.
double relative_error(const Logits& logits, const Logits& expected) {
  std::vector<double> errors;
  for (size_t r = 0; r < expected.size(); ++r) {
    double difference = 0.0, magnitude = 0.0;
    for (size_t i = 0; i < expected[r].size(); ++i) {
      difference += std::pow(double{logits[r][i]} - expected[r][i], 2);
      magnitude += std::pow(double{expected[r][i]}, 2);
    }
    errors.push_back(std::sqrt(difference / magnitude));
  }
  std::nth_element(errors.begin(), errors.begin() + errors.size() / 2, errors.end());
  return errors[errors.size() / 2];
}

class CpuAgainstReference : public testing::TestWithParam<std::tuple<TinyKind, Setting>> {};

TEST_P(CpuAgainstReference, LogitsAgreeAtEveryPosition) {
  const auto& [kind, setting] = GetParam();
  const auto model = test::tiny_model(kind, setting.widths, setting.weights);
  ExecutorOptions options;
  options.context = 128;
  options.chunk = 40;
  const auto prompt = test::random_tokens(model->config().V, 60, 17);
  const Logits expected = feed(*make_reference_executor(model, options), 0, prompt, 40);
  options.kv_format = setting.cache;
  for (const cpu::KernelTable* table : cpu::usable_kernels()) {
    options.kernels = KernelChoices::parse(fmt::format("dot={},activations={}", table->name, setting.activations));
    const Logits logits = feed(*make_cpu_executor(model, options), 0, prompt, 40);
    ASSERT_EQ(logits.size(), expected.size());
    const double error = relative_error(logits, expected);
    EXPECT_LE(error, setting.tolerance) << table->name;
    RecordProperty(fmt::format("error_{}", table->name), fmt::format("{:.2e}", error));
  }
}

// A file of each format, from its bytes to logits: opened, run by both executors, and the same within the rounding of
// activations to 15 bits.
class EveryFormatOfWeights : public testing::TestWithParam<quant::FormatInfo> {};

TEST_P(EveryFormatOfWeights, OpensAndRunsOnTheReferenceAndTheCpu) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("model.gguf"), name(GetParam().name);
  const bool is_float = GetParam().block == 1;
  ThreadPool pool(1);
  model::write_synth(model::plan_synth({.preset = "tiny-12b", .recipe = name + (is_float ? "" : "-pure")}), path, pool);
  const auto model = model::Model::load(gguf::ModelFile::open(path));
  EXPECT_EQ(model->weights().layers.front().ffn_down.format, GetParam().format);
  ExecutorOptions options;
  options.context = 64;
  options.chunk = 8;
  const auto prompt = test::random_tokens(model->config().V, 12, 3);
  const Logits expected = feed(*make_reference_executor(model, options), 0, prompt, 8);
  options.kv_format = Format::kF32;
  const double error = relative_error(feed(*make_cpu_executor(model, options), 0, prompt, 8), expected);
  EXPECT_LE(error, is_float ? 1e-5 : 3e-3);
  RecordProperty("error", fmt::format("{:.2e}", error));
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormatOfWeights,
                         testing::ValuesIn(quant::formats().begin(), quant::formats().end()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

std::string setting_name(const testing::TestParamInfo<std::tuple<TinyKind, Setting>>& parameter) {
  const auto& [kind, setting] = parameter.param;
  return fmt::format("{}_{}_{}_cache_{}", test::tiny_name(kind), quant::info(setting.weights).name, setting.activations,
                     quant::info(setting.cache).name);
}

// How many products of a layer's up matrix with an input as norms leave it are beyond fp16, as a share of all.
double share_beyond_fp16(const model::Model& model) {
  const model::Matrix& up = model.weights().layers.front().ffn_up;
  const auto input = test::Random(7).normals(up.cols, 1.0f);
  std::vector<float> row(up.cols);
  size_t beyond = 0;
  for (uint64_t r = 0; r < up.rows; ++r) {
    quant::info(up.format).dequantise(up.row(r).data(), row.data(), row.size());
    beyond += std::abs(std::inner_product(row.begin(), row.end(), input.begin(), 0.0f)) > 65504.0f ? 1 : 0;
  }
  return static_cast<double>(beyond) / static_cast<double>(up.rows);
}

// Gemma's activations are large where no norm has been yet: nothing may hold them in fp16.
TEST(CpuOnLargeValues, AreHeldBeyondFp16) {
  for (const TinyKind kind : test::kTinyKinds) {
    for (const Format format : {Format::kBF16, Format::kQ8_0, Format::kQ4_0}) {
      const auto model = test::tiny_model_of_large_values(kind, 32, format);
      const auto plain = test::tiny_model(kind, 32, format);
      EXPECT_GT(share_beyond_fp16(*model), 0.01) << test::tiny_name(kind);
      EXPECT_EQ(share_beyond_fp16(*plain), 0.0) << test::tiny_name(kind);
      ExecutorOptions options;
      options.context = 128;
      options.chunk = 64;
      const auto tokens = test::random_tokens(model->config().V, 60, 3);
      const auto reference = make_reference_executor(model, options), small = make_reference_executor(plain, options);
      const auto executor = make_cpu_executor(model, options);
      const Logits expected = feed(*reference, 0, std::span<const int32_t>(tokens), 64, 0);
      // The large values end at norms: the model is the one it was.
      EXPECT_LT(relative_error(feed(*small, 0, std::span<const int32_t>(tokens), 64, 0), expected), 1e-4);
      EXPECT_LT(relative_error(feed(*executor, 0, std::span<const int32_t>(tokens), 64, 0), expected), 3e-3)
          << test::tiny_name(kind) << " " << quant::info(format).name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryKind, CpuAgainstReference,
                         testing::Combine(testing::ValuesIn(test::kTinyKinds), testing::ValuesIn(kSettings)),
                         setting_name);

}  // namespace
}  // namespace carat::exec
