#include "exec/cuda/profile_steps.h"

#include <gtest/gtest.h>

#include <set>

#include "exec/cuda/hollow_models.h"
#include "exec/cuda/weights/placement.h"

namespace carat::cuda {
namespace {

constexpr Step kAllSteps[] = {Step::kUpload,     Step::kEmbed,           Step::kPleInput,    Step::kNorm,
                              Step::kQkv,        Step::kQueries,         Step::kKeysValues,  Step::kHeads,
                              Step::kAttention,  Step::kAttentionOutput, Step::kGateUp,      Step::kDown,
                              Step::kRouter,     Step::kExpertsUp,       Step::kExpertsDown, Step::kPleGate,
                              Step::kPleProject, Step::kUnpack,          Step::kHead,        Step::kSelect};

// Work of a whole decode step: every layer once, as the narrow pass marks it.
Work decode_work(const model::Model& model, uint32_t position) {
  const model::Config& config = model.config();
  Work sum;
  const auto add = [&](Step step, uint32_t layer) { sum += work_of({step, layer, 1, true}, {position, 1}, model); };
  for (uint32_t i = 0; i < config.L; ++i) {
    for (const Step step : {Step::kQkv, Step::kAttention, Step::kAttentionOutput, Step::kGateUp, Step::kDown})
      add(step, i);
    if (config.P > 0) add(Step::kPleGate, i), add(Step::kPleProject, i);
    if (config.experts > 0) add(Step::kRouter, i), add(Step::kExpertsUp, i), add(Step::kExpertsDown, i);
  }
  if (config.P > 0) add(Step::kPleInput, config.L);
  add(Step::kHead, 0);
  return sum;
}

TEST(ProfileSteps, ADecodeStepReadsEveryWeightOnce) {
  for (const char* preset : {"e4b", "12b", "31b"}) {
    const model::Model& model = test::model_of(preset, "q8_0");
    const auto packed = static_cast<double>(weight_bytes(model, 0).packed);
    const double read = decode_work(model, 0).bytes;
    // The packed weights and, besides, activations of one row and one position of keys and values.
    EXPECT_GT(read, 0.99 * packed) << preset;
    EXPECT_LT(read, 1.01 * packed) << preset;
  }
}

TEST(ProfileSteps, ExpertsAreReadAsFarAsTheyAreUsed) {
  const model::Model& model = test::model_of("26b-a4b", "q4_0");
  const model::Matrix& down = model.weights().layers[0].ffn_down_exps;
  const auto whole = static_cast<double>(down.data.size());
  const Work one = work_of({Step::kExpertsDown, 0, 1, true}, {0, 1}, model);
  EXPECT_NEAR(one.bytes / whole, 8.0 / 128.0, 0.01);
  const double multiplied = 2.0 * 8.0 * static_cast<double>(down.rows * down.cols);
  EXPECT_DOUBLE_EQ(one.flops, multiplied);
  const Work many = work_of({Step::kExpertsDown, 0, 512, false}, {0, 512}, model);
  EXPECT_DOUBLE_EQ(many.flops, 512.0 * multiplied);
  EXPECT_GT(many.bytes, 2.0 * static_cast<double>(down.rows * down.cols * down.slices));  // all of them, in bf16
}

TEST(ProfileSteps, ProductsOfAPromptCountTheirFlops) {
  const model::Model& model = test::model_of("e4b", "q8_0");
  const Work work = work_of({Step::kGateUp, 3, 2048, false}, {0, 2048}, model);
  EXPECT_DOUBLE_EQ(work.flops, 2.0 * 2048 * 2 * 2560 * 10240);
  EXPECT_DOUBLE_EQ(work.bytes, 2.0 * (2.0 * 2560 * 10240 + 2048.0 * 2560 + 2048.0 * 2 * 10240));
  // Half of a layer's projections of keys and values and of queries are the whole together.
  const auto flops = [&](Step step) { return work_of({step, 5, 100, false}, {0, 100}, model).flops; };
  EXPECT_DOUBLE_EQ(flops(Step::kQueries) + flops(Step::kKeysValues), flops(Step::kQkv));
}

TEST(ProfileSteps, AttentionSeesItsWindow) {
  const model::Model& model = test::model_of("e4b", "q8_0");
  const model::Config& config = model.config();
  const uint32_t global = 5, sliding = 0;
  ASSERT_FALSE(config.layers[global].sliding);
  ASSERT_TRUE(config.layers[sliding].sliding);
  ASSERT_EQ(config.W, 512u);
  const auto pairs = [&](uint32_t layer, uint32_t first, uint32_t count) {
    const double width = 4.0 * config.layers[layer].H * config.layers[layer].hd;
    return work_of({Step::kAttention, layer, count, false}, {first, count}, model).flops / width;
  };
  EXPECT_DOUBLE_EQ(pairs(global, 0, 4), 1 + 2 + 3 + 4);
  EXPECT_DOUBLE_EQ(pairs(global, 1000, 2), 1001 + 1002);
  EXPECT_DOUBLE_EQ(pairs(sliding, 0, 4), 1 + 2 + 3 + 4);
  EXPECT_DOUBLE_EQ(pairs(sliding, 1000, 2), 512 + 512);
  EXPECT_DOUBLE_EQ(pairs(sliding, 510, 3), 511 + 512 + 512);

  const auto keys = [&](uint32_t layer, uint32_t first, uint32_t count) {
    const model::Layer& l = config.layers[layer];
    const double activations = count * 4.0 * l.H * l.hd;  // queries and results, two bytes each
    return (work_of({Step::kAttention, layer, count, false}, {first, count}, model).bytes - activations) /
           (4.0 * l.Hkv * l.hd);
  };
  EXPECT_DOUBLE_EQ(keys(global, 1000, 10), 1010);
  EXPECT_DOUBLE_EQ(keys(sliding, 1000, 10), 521);  // 512 of the first row, and one more for each that follows
  EXPECT_DOUBLE_EQ(keys(sliding, 0, 10), 10);
}

TEST(ProfileSteps, AQuantisedCacheIsSmaller) {
  const model::Model& model = test::model_of("e4b", "q8_0");
  // 34 bytes for 32 values instead of 64.
  const auto keys_and_values = [&](quant::Format format) {
    const double queries = 8 * 512 * (2.0 + 4.0);
    return work_of({Step::kAttention, 41, 1, true}, {2047, 1}, model, format).bytes - queries;
  };
  EXPECT_DOUBLE_EQ(keys_and_values(quant::Format::kQ8_0) * 32.0, keys_and_values(quant::Format::kF16) * 17.0);
}

TEST(ProfileSteps, ARowOfAPassIsItsLast) {
  // After the shortcut the one row that wants logits goes on alone: it sees the whole prompt.
  const model::Model& model = test::model_of("e4b", "q8_0");
  const Work tail = work_of({Step::kAttention, 41, 1, true}, {0, 2048}, model);
  const Work alone = work_of({Step::kAttention, 41, 1, true}, {2047, 1}, model);
  EXPECT_DOUBLE_EQ(tail.flops, alone.flops);
  EXPECT_DOUBLE_EQ(tail.bytes, alone.bytes);
}

TEST(ProfileSteps, EveryStepHasAFamilyWithAName) {
  const model::Model& model = test::model_of("26b-a4b", "q4_0");
  std::set<Family> used;
  for (const Step step : kAllSteps) {
    for (const uint32_t layer : {0u, 5u}) used.insert(family_of({step, layer, 1, true}, model.config()));
  }
  EXPECT_EQ(used.size(), kFamilies);
  std::set<std::string_view> names;
  for (uint32_t i = 0; i < kFamilies; ++i) names.insert(family_name(static_cast<Family>(i)));
  EXPECT_EQ(names.size(), kFamilies);
  EXPECT_EQ(names.count(""), 0u);
}

}  // namespace
}  // namespace carat::cuda
