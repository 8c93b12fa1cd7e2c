// Which layers a plan leaves to the CPU: on cards that are too small for the model, and when a number was asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "exec/cuda/plan/metadata_models.h"
#include "exec/cuda/plan/plan.h"
#include "exec/cuda/plan/synthetic_gpus.h"
#include "exec/executor.h"

namespace carat::cuda {
namespace {

using test::made_up_gpu;
using test::model_of;
using testing::HasSubstr;

Plan plan_for(const model::Model& model, uint32_t gib, std::optional<uint32_t> gpu_layers, uint32_t context = 4096) {
  PlanRequest request;
  request.context = context;
  request.outputs = 1;
  request.gpu_layers = gpu_layers;
  return make_plan(model, made_up_gpu(89, gib), request);
}

TEST(LastSplit, KeepsEverySourceBesideItsReaders) {
  for (const auto& [preset, recipe] :
       {std::pair{"e2b", "q8_0"}, {"e4b", "q8_0"}, {"12b", "q4_0"}, {"26b-a4b", "q4_0"}, {"31b", "q4_0"}}) {
    const model::Config& config = model_of(preset, recipe).config();
    const uint32_t last = last_split(config);
    EXPECT_GT(last, 0u) << preset;
    const auto reachable = [&](uint32_t split) {
      for (uint32_t i = split; i < config.L; ++i) {
        if (config.layers[i].kv_source < split) return false;
      }
      return true;
    };
    for (uint32_t split = 0; split <= last; ++split) EXPECT_TRUE(reachable(split)) << preset << " " << split;
    // One more either takes a source away or leaves a single owner of keys and values.
    EXPECT_TRUE(!reachable(last + 1) || last + 2 == config.n_kv) << preset;
  }
}

TEST(WishedSplit, IsTheNearestThatIsPossible) {
  const model::Config& dense = model_of("31b", "q4_0").config();
  EXPECT_EQ(wished_split(dense, exec::kAllLayers), 0u);
  EXPECT_EQ(wished_split(dense, dense.L), 0u);
  EXPECT_EQ(wished_split(dense, dense.L - 1), 1u);
  EXPECT_EQ(wished_split(dense, 2), dense.L - 2);
  EXPECT_EQ(wished_split(dense, 1), dense.L - 2);
  const model::Config& shared = model_of("e4b", "q8_0").config();
  EXPECT_EQ(wished_split(shared, 1), last_split(shared));
  EXPECT_EQ(wished_split(shared, shared.L - 3), 3u);
}

// Which cards take a whole model and which share it with the CPU, with a context of 4096.
TEST(SplitPlan, PlacesRealModelsOnSmallCards) {
  struct Case {
    std::string preset, recipe;
    uint32_t gib;
    bool fits, whole;
  };
  for (const Case& c : {
           Case{"e4b", "q8_0", 8, true, true},  // with the table in host memory
           Case{"e4b", "q8_0", 12, true, true},
           Case{"e4b", "q8_0", 16, true, true},
           Case{"e4b", "q8_0", 24, true, true},
           Case{"12b", "q4_0", 8, true, false},
           Case{"12b", "q4_0", 12, true, true},
           Case{"12b", "q4_0", 16, true, true},
           Case{"12b", "q4_0", 24, true, true},
           Case{"26b-a4b", "q4_0", 8, true, false},
           Case{"26b-a4b", "q4_0", 12, true, false},
           Case{"26b-a4b", "q4_0", 16, true, false},
           Case{"26b-a4b", "q4_0", 24, true, true},
           Case{"31b", "q4_0", 8, true, false},
           Case{"31b", "q4_0", 12, true, false},
           Case{"31b", "q4_0", 16, true, false},
           Case{"31b", "q4_0", 24, true, true},
       }) {
    const model::Model& model = model_of(c.preset, c.recipe);
    const Plan plan = plan_for(model, c.gib, std::nullopt);
    const std::string name = c.preset + " on " + std::to_string(c.gib) + " GB: layer " +
                             std::to_string(plan.placement.first_layer) + " of " + std::to_string(model.config().L);
    EXPECT_EQ(plan.fits, c.fits) << name;
    EXPECT_EQ(plan.placement.first_layer == 0, c.whole) << name;
    EXPECT_LE(plan.placement.first_layer, last_split(model.config())) << name;
    EXPECT_EQ(plan_for(model, c.gib, exec::kAllLayers).fits, c.whole) << name;
    EXPECT_FALSE(plan.split.reason.empty());
  }
}

TEST(SplitPlan, LeavesNoLayerToTheCpuThatFits) {
  for (const auto& [preset, gib] : {std::pair{"12b", 8u}, {"26b-a4b", 12u}, {"31b", 16u}, {"31b", 8u}}) {
    const model::Model& model = model_of(preset, "q4_0");
    const Plan plan = plan_for(model, gib, std::nullopt);
    ASSERT_TRUE(plan.fits);
    ASSERT_GT(plan.placement.first_layer, 0u);
    const uint32_t on_gpu = model.config().L - plan.placement.first_layer;
    EXPECT_TRUE(plan_for(model, gib, on_gpu).fits);
    EXPECT_FALSE(plan_for(model, gib, on_gpu + 1).fits) << preset;
    EXPECT_THAT(plan.split.reason, HasSubstr("more do not fit"));
    // The figures beside the split are those of the layers that are left.
    EXPECT_EQ(plan.weights.packed, weight_bytes(model, plan.placement.first_layer).packed);
    uint32_t owners = 0;
    for (const KvGroupPlan& group : plan.kv) owners += group.layers;
    EXPECT_EQ(owners, model.config().n_kv - plan.placement.first_layer);
  }
}

TEST(SplitPlan, LargerCardsTakeMoreLayers) {
  const model::Model& model = model_of("31b", "q4_0");
  uint32_t before = model.config().L;
  for (uint32_t gib = 4; gib <= 24; gib += 2) {
    const Plan plan = plan_for(model, gib, std::nullopt);
    EXPECT_LE(plan.placement.first_layer, before) << gib;
    before = plan.placement.first_layer;
  }
  EXPECT_EQ(before, 0u);
}

TEST(SplitPlan, AContextBeyondTheLargestCostsLayers) {
  const model::Model& model = model_of("31b", "q4_0");
  const Plan whole = plan_for(model, 24, std::nullopt);
  ASSERT_EQ(whole.placement.first_layer, 0u);
  ASSERT_LT(whole.largest_context, model.config().context_length);
  EXPECT_EQ(plan_for(model, 24, std::nullopt, whole.largest_context).placement.first_layer, 0u);
  const Plan beyond = plan_for(model, 24, std::nullopt, whole.largest_context + 64);
  EXPECT_TRUE(beyond.fits);
  EXPECT_GT(beyond.placement.first_layer, 0u);
  EXPECT_FALSE(plan_for(model, 24, exec::kAllLayers, whole.largest_context + 64).fits);
}

TEST(SplitPlan, GrantsANumberOfLayers) {
  const model::Model& model = model_of("12b", "q4_0");
  const Plan plan = plan_for(model, 24, model.config().L - 5);
  EXPECT_EQ(plan.placement.first_layer, 5u);
  EXPECT_THAT(plan.split.reason, HasSubstr("asked for"));
  EXPECT_LT(plan.weights.packed, plan_for(model, 24, std::nullopt).weights.packed);
}

TEST(SplitPlan, SaysWhatANumberWasTakenAs) {
  const model::Model& model = model_of("e4b", "q8_0");
  const Plan plan = plan_for(model, 24, 7);
  EXPECT_EQ(plan.placement.first_layer, last_split(model.config()));
  EXPECT_THAT(plan.split.reason, HasSubstr("-ngl 7 is taken as"));
  EXPECT_THAT(plan.split.reason, HasSubstr("keys and values"));
}

TEST(SplitPlan, NothingOnTheGpuIsNoPlan) {
  try {
    plan_for(model_of("e4b", "q8_0"), 24, 0);
    FAIL() << "a plan was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(), HasSubstr("--device cpu"));
  }
}

TEST(SplitPlan, TheCostIsOfTheLayersOnTheCpu) {
  const model::Model& dense = model_of("12b", "q4_0");
  const Plan plan = plan_for(dense, 24, dense.config().L - 4);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const model::LayerWeights& w = dense.weights().layers[i];
    for (const auto* m : {&w.attn_q, &w.attn_k, &w.attn_v, &w.attn_output, &w.ffn_gate, &w.ffn_up, &w.ffn_down}) {
      bytes += m->data.size();
    }
  }
  EXPECT_EQ(plan.split.weight_bytes, bytes);
  EXPECT_EQ(plan.split.bytes_per_token, bytes);
  EXPECT_GT(plan.split.kv_bytes, 0u);

  // A token meets only some of the experts.
  const model::Model& experts = model_of("26b-a4b", "q4_0");
  const SplitPlan routed = plan_for(experts, 24, experts.config().L - 4).split;
  EXPECT_LT(routed.bytes_per_token, routed.weight_bytes / 4);

  SplitPlan split;
  split.bytes_per_token = 2'000'000'000;
  const std::string text = cost_text(split, 40e9, "an assumed");
  EXPECT_THAT(text, HasSubstr("2.00 GB"));
  EXPECT_THAT(text, HasSubstr("50.0 ms at an assumed 40 GB/s"));
  EXPECT_THAT(text, HasSubstr("20 tokens/s (an estimate)"));

  const SplitPlan none = plan_for(dense, 24, std::nullopt).split;
  EXPECT_EQ(none.bytes_per_token + none.weight_bytes + none.kv_bytes, 0u);
}

}  // namespace
}  // namespace carat::cuda
