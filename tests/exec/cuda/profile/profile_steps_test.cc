#include "exec/cuda/profile/profile_steps.h"

#include <gtest/gtest.h>

#include <set>

#include "exec/cuda/plan/metadata_models.h"
#include "exec/cuda/plan/product_choice.h"
#include "exec/cuda/weights/packing.h"
#include "exec/cuda/weights/placement.h"

namespace carat::cuda {
namespace {

constexpr Step kAllSteps[] = {Step::kUpload,      Step::kEmbed,           Step::kPleInput,    Step::kNorm,
                              Step::kQkv,         Step::kQueries,         Step::kKeysValues,  Step::kHeads,
                              Step::kAttention,   Step::kAttentionOutput, Step::kGateUp,      Step::kDown,
                              Step::kRouter,      Step::kExpertsUp,       Step::kExpertsDown, Step::kPleGate,
                              Step::kPleProject,  Step::kUnpack,          Step::kHead,        Step::kSelect,
                              Step::kGateUpRouter};

// What a mark stands for, under a plan of which only the choices that matter are given.
Work work_under(const StepMark& mark, const PassRows& rows, const model::Model& model, Plan plan) {
  plan.products = choose_product_paths(model, plan);
  return work_of(mark, rows, model, plan);
}

// A plan of the simplest kind: prompt chunks by the library over bf16 copies, all keys visible.
Plan library_plan() {
  Plan plan;
  plan.placement.resident_bf16 = true;
  return plan;
}
const Plan kLibrary = library_plan();

Plan mmq_plan(MmqActivations activations) {
  Plan plan;
  plan.gemm.kind = GemmKind::kMmq;
  plan.gemm.activations = activations;
  return plan;
}

Plan warpgroup_plan() {
  Plan plan;
  plan.dequantise = plan.warpgroup_experts = true;
  return plan;
}

Plan fp8_plan() {
  Plan plan;
  plan.gemm.kind = GemmKind::kFp8;
  plan.placement.resident_fp8 = plan.placement.resident_bf16 = true;
  return plan;
}

// Work of a whole decode step: every layer once, as the narrow pass marks it.
Work decode_work(const model::Model& model, uint32_t position) {
  const model::Config& config = model.config();
  Work sum;
  const auto add = [&](Step step, uint32_t layer) {
    sum += work_under({step, layer, 1, true}, {position, 1}, model, kLibrary);
  };
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
  const Work one = work_under({Step::kExpertsDown, 0, 1, true}, {0, 1}, model, kLibrary);
  EXPECT_NEAR(one.bytes / whole, 8.0 / 128.0, 0.01);
  const double multiplied = 2.0 * 8.0 * static_cast<double>(down.rows * down.cols);
  EXPECT_DOUBLE_EQ(one.flops, multiplied);
  const Work many = work_under({Step::kExpertsDown, 0, 512, false}, {0, 512}, model, kLibrary);
  EXPECT_DOUBLE_EQ(many.flops, 512.0 * multiplied);
  EXPECT_GT(many.bytes, 2.0 * static_cast<double>(down.rows * down.cols * down.slices));  // all of them, in bf16
}

TEST(ProfileSteps, ARouterThatIsNoStepOfItsOwnCounts) {
  const model::Model& model = test::model_of("26b-a4b", "q4_0");
  const auto work = [&](Step step) { return work_under({step, 3, 1, true}, {0, 1}, model, kLibrary); };
  Work apart = work(Step::kGateUp);
  apart += work(Step::kRouter);
  EXPECT_DOUBLE_EQ(work(Step::kGateUpRouter).bytes, apart.bytes);
  EXPECT_DOUBLE_EQ(work(Step::kGateUpRouter).flops, apart.flops);
}

TEST(ProfileSteps, ProductsOfAPromptCountTheirFlops) {
  const model::Model& model = test::model_of("e4b", "q8_0");
  const Work work = work_under({Step::kGateUp, 3, 2048, false}, {0, 2048}, model, kLibrary);
  EXPECT_DOUBLE_EQ(work.flops, 2.0 * 2048 * 2 * 2560 * 10240);
  EXPECT_DOUBLE_EQ(work.bytes, 2.0 * (2.0 * 2560 * 10240 + 2048.0 * 2560 + 2048.0 * 2 * 10240));
  // Half of a layer's projections of keys and values and of queries are the whole together.
  const auto flops = [&](Step step) { return work_under({step, 5, 100, false}, {0, 100}, model, kLibrary).flops; };
  EXPECT_DOUBLE_EQ(flops(Step::kQueries) + flops(Step::kKeysValues), flops(Step::kQkv));
}

// Bytes of a step of 2,048 rows less those of one of 1,024 are activations; what is left of one are weights.
struct PromptBytes {
  double weights, activations_of_a_row;
};
PromptBytes prompt_bytes(Step step, uint32_t layer, const model::Model& model, const Plan& plan) {
  const auto bytes = [&](uint32_t rows) {
    return work_under({step, layer, rows, false}, {0, rows}, model, plan).bytes;
  };
  const double of_a_row = (bytes(2048) - bytes(1024)) / 1024;
  return {bytes(1024) - 1024 * of_a_row, of_a_row};
}

// Q8_0 takes 34 bytes of 32 weights in any packing of whole steps; Q4_0 takes 18.
TEST(ProfileSteps, PackedProductsReadPackedWeights) {
  constexpr double d = 2560, F = 10240;
  const model::Model& model = test::model_of("e4b", "q8_0-pure");
  const PromptBytes library = prompt_bytes(Step::kGateUp, 3, model, kLibrary);
  EXPECT_DOUBLE_EQ(library.weights, 2 * d * F * 2);
  EXPECT_DOUBLE_EQ(library.activations_of_a_row, 2 * (d + 2 * F));

  // One launch writes gelu(gate) * up alone.
  const PromptBytes warpgroups = prompt_bytes(Step::kGateUp, 3, model, warpgroup_plan());
  EXPECT_DOUBLE_EQ(warpgroups.weights, 2 * d * F * 34 / 32);
  EXPECT_DOUBLE_EQ(warpgroups.activations_of_a_row, 2 * (d + F));

  // Integers and, per 32 of them, a scale of four bytes; their sum only where the packing has minima.
  const PromptBytes integers = prompt_bytes(Step::kGateUp, 3, model, mmq_plan(MmqActivations::kInt8));
  EXPECT_DOUBLE_EQ(integers.weights, 2 * d * F * 34 / 32);
  EXPECT_DOUBLE_EQ(integers.activations_of_a_row, 1.125 * d + 2 * 2 * F);
  const PromptBytes down = prompt_bytes(Step::kDown, 3, model, mmq_plan(MmqActivations::kInt16));
  EXPECT_DOUBLE_EQ(down.weights, d * F * 34 / 32);
  EXPECT_DOUBLE_EQ(down.activations_of_a_row, 2.125 * F + 2 * d);
  const model::Model& minima = test::model_of("e4b", "q4_k-pure");
  EXPECT_DOUBLE_EQ(prompt_bytes(Step::kDown, 3, minima, mmq_plan(MmqActivations::kInt16)).activations_of_a_row,
                   2.25 * F + 2 * d);
  // What attention leaves is bf16, and rounded in the step that multiplies it.
  const PromptBytes output = prompt_bytes(Step::kAttentionOutput, 3, model, mmq_plan(MmqActivations::kInt8));
  EXPECT_DOUBLE_EQ(output.weights, d * 8 * 256 * 34 / 32);
  EXPECT_DOUBLE_EQ(output.activations_of_a_row, 2 * (8 * 256 + d));
  // Norms hand out what the products read, with the sums.
  EXPECT_DOUBLE_EQ(prompt_bytes(Step::kNorm, 0, model, mmq_plan(MmqActivations::kInt8)).activations_of_a_row,
                   d * (8 + 2 + 1.25));
  EXPECT_DOUBLE_EQ(prompt_bytes(Step::kNorm, 0, model, kLibrary).activations_of_a_row, d * (8 + 2 + 2));

  const model::Model& four_bits = test::model_of("e4b", "q4_0-pure");
  EXPECT_DOUBLE_EQ(prompt_bytes(Step::kDown, 3, four_bits, warpgroup_plan()).weights, d * F * 18 / 32);
}

// A byte for a weight or an activation, four for the scale of a weight's row; per-layer embeddings and the head stay.
TEST(ProfileSteps, Fp8ProductsReadBytes) {
  constexpr double d = 2560, F = 10240;
  const model::Model& model = test::model_of("e4b", "q8_0-pure");
  const PromptBytes down = prompt_bytes(Step::kDown, 3, model, fp8_plan());
  EXPECT_DOUBLE_EQ(down.weights, d * F + 4 * d);
  EXPECT_DOUBLE_EQ(down.activations_of_a_row, F + 2 * d);
  EXPECT_DOUBLE_EQ(prompt_bytes(Step::kAttentionOutput, 3, model, fp8_plan()).activations_of_a_row, 2 * (8 * 256 + d));
  for (const Step step : {Step::kPleGate, Step::kPleProject, Step::kHead, Step::kPleInput}) {
    EXPECT_DOUBLE_EQ(prompt_bytes(step, 3, model, fp8_plan()).weights, prompt_bytes(step, 3, model, kLibrary).weights);
  }
}

// All projections of a layer go one way, whichever of them a step wants, and a single row always reads what is packed.
TEST(ProfileSteps, EveryStepOfALayerCountsTheSameWeights) {
  const model::Model& model = test::model_of("12b", "q4_0-pure");
  for (const Plan& plan : {kLibrary, mmq_plan(MmqActivations::kInt16), warpgroup_plan(), fp8_plan()}) {
    const auto weights = [&](Step step) { return prompt_bytes(step, 0, model, plan).weights; };
    EXPECT_DOUBLE_EQ(weights(Step::kQueries) + weights(Step::kKeysValues), weights(Step::kQkv));
    for (const Step step : {Step::kQkv, Step::kAttentionOutput, Step::kGateUp, Step::kDown, Step::kHead}) {
      const StepMark mark = {step, 0, 1, true};
      EXPECT_DOUBLE_EQ(work_under(mark, {0, 1}, model, plan).bytes, work_under(mark, {0, 1}, model, kLibrary).bytes);
    }
  }
}

// Matrices that a kernel cannot read as they are packed are read as bf16.
TEST(ProfileSteps, WhatAKernelCannotReadPackedIsBf16) {
  const model::Model& model = test::model_of("e4b", "q6_k-pure");
  constexpr double d = 2560, F = 10240;
  EXPECT_DOUBLE_EQ(prompt_bytes(Step::kDown, 3, model, warpgroup_plan()).weights, d * F * 2);
  EXPECT_DOUBLE_EQ(prompt_bytes(Step::kDown, 3, model, mmq_plan(MmqActivations::kInt8)).weights, d * F * 210 / 256);
  const model::Model& floats = test::model_of("e4b", "f16");
  EXPECT_DOUBLE_EQ(prompt_bytes(Step::kDown, 3, floats, mmq_plan(MmqActivations::kInt8)).weights, d * F * 2);
}

TEST(ProfileSteps, ExpertsOfAPromptAreReadPackedByWarpgroups) {
  const model::Model& model = test::model_of("26b-a4b", "q4_0-pure");
  const model::Config& config = model.config();
  const model::Matrix& down = model.weights().layers[0].ffn_down_exps;
  const auto elements = static_cast<double>(down.rows * down.cols * down.slices);
  const double used = config.experts_used, F = config.F_expert, d = config.d;
  const auto packed = static_cast<double>(packed_matrix_bytes(Packing::kQ4, down.rows * down.slices, down.cols));

  const PromptBytes by_mma = prompt_bytes(Step::kExpertsDown, 0, model, kLibrary);
  EXPECT_DOUBLE_EQ(by_mma.weights, 2 * elements);
  EXPECT_DOUBLE_EQ(by_mma.activations_of_a_row, 2 * used * (F + d));
  const PromptBytes by_warpgroups = prompt_bytes(Step::kExpertsDown, 0, model, warpgroup_plan());
  EXPECT_DOUBLE_EQ(by_warpgroups.weights, packed);
  EXPECT_DOUBLE_EQ(by_warpgroups.activations_of_a_row, 2 * used * (F + d));

  const PromptBytes up_by_mma = prompt_bytes(Step::kExpertsUp, 0, model, kLibrary);
  EXPECT_DOUBLE_EQ(up_by_mma.weights, 2 * 2 * elements);
  EXPECT_DOUBLE_EQ(up_by_mma.activations_of_a_row, 2 * used * (d + 2 * F));
  const PromptBytes up_by_warpgroups = prompt_bytes(Step::kExpertsUp, 0, model, warpgroup_plan());
  EXPECT_DOUBLE_EQ(up_by_warpgroups.weights, 2 * elements * 18 / 32);
  EXPECT_DOUBLE_EQ(up_by_warpgroups.activations_of_a_row, 2 * used * (d + F));
}

// The expected number of keys of a row, by hand: 1 first block, 16 recent, its own, and of b blocks max(64, b / 8).
TEST(ProfileSteps, SparseAttentionMultipliesWhatItVisits) {
  const model::Model& model = test::model_of("e4b", "q8_0");
  const model::Layer& layer = model.config().layers[5];
  ASSERT_FALSE(layer.sliding);
  Plan plan;
  plan.sparse = SparseAttention{};
  const auto keys = [&](uint32_t position, bool narrow) {
    const Work work = work_under({Step::kAttention, 5, 1, narrow}, {position, 1}, model, plan);
    return work.flops / (4.0 * layer.H * layer.hd);
  };
  EXPECT_DOUBLE_EQ(keys(16383, false), 16384);
  EXPECT_DOUBLE_EQ(keys(16384, false), (1 + 16 + 1 + 64) * 64);
  EXPECT_DOUBLE_EQ(keys(131071, false), (1 + 16 + 1 + 2048 / 8) * 64);
  EXPECT_DOUBLE_EQ(keys(131071, true), 131072) << "single rows see everything";
  // A chunk across the border: rows before it see all there is.
  const Work chunk = work_under({Step::kAttention, 5, 2, false}, {16383, 2}, model, plan);
  EXPECT_DOUBLE_EQ(chunk.flops / (4.0 * layer.H * layer.hd), 16384 + 82 * 64);
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
    return work_under({Step::kAttention, layer, count, false}, {first, count}, model, kLibrary).flops / width;
  };
  EXPECT_DOUBLE_EQ(pairs(global, 0, 4), 1 + 2 + 3 + 4);
  EXPECT_DOUBLE_EQ(pairs(global, 1000, 2), 1001 + 1002);
  EXPECT_DOUBLE_EQ(pairs(sliding, 0, 4), 1 + 2 + 3 + 4);
  EXPECT_DOUBLE_EQ(pairs(sliding, 1000, 2), 512 + 512);
  EXPECT_DOUBLE_EQ(pairs(sliding, 510, 3), 511 + 512 + 512);

  const auto keys = [&](uint32_t layer, uint32_t first, uint32_t count) {
    const model::Layer& l = config.layers[layer];
    const double activations = count * 4.0 * l.H * l.hd;  // queries and results, two bytes each
    return (work_under({Step::kAttention, layer, count, false}, {first, count}, model, kLibrary).bytes - activations) /
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
    Plan plan;
    plan.kv_format = format;
    return work_under({Step::kAttention, 41, 1, true}, {2047, 1}, model, plan).bytes - queries;
  };
  EXPECT_DOUBLE_EQ(keys_and_values(quant::Format::kQ8_0) * 32.0, keys_and_values(quant::Format::kF16) * 17.0);
}

TEST(ProfileSteps, ARowOfAPassIsItsLast) {
  // After the shortcut the one row that wants logits goes on alone: it sees the whole prompt.
  const model::Model& model = test::model_of("e4b", "q8_0");
  const Work tail = work_under({Step::kAttention, 41, 1, true}, {0, 2048}, model, kLibrary);
  const Work alone = work_under({Step::kAttention, 41, 1, true}, {2047, 1}, model, kLibrary);
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
