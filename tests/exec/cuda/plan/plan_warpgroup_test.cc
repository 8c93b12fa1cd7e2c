// When a plan has products made by warpgroups, and what that saves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/cuda/plan/metadata_models.h"
#include "exec/cuda/plan/plan.h"
#include "exec/cuda/plan/plans.h"
#include "exec/cuda/plan/synthetic_gpus.h"
#include "exec/executor.h"

namespace carat::cuda {
namespace {

using test::made_up_gpu;
using test::model_of;
using test::request_of;
using testing::HasSubstr;

Plan plan_for(const model::Model& model, const GpuFacts& gpu, std::string_view kernels = "") {
  return make_plan(model, gpu, request_of(4096, kernels));
}

const KernelDecision& decision(const Plan& plan, std::string_view slot) {
  static const KernelDecision none;
  for (const KernelDecision& made : plan.kernels) {
    if (made.slot == slot) return made;
  }
  return none;
}

GpuFacts without_warpgroups(GpuFacts gpu) {
  gpu.warpgroup_products = false;
  return gpu;
}

TEST(WarpgroupPlan, WeightsWithoutCopiesAreDequantised) {
  const model::Model& model = model_of("31b", "q4_0");
  const GpuFacts gpu = made_up_gpu(90, 72);  // 17 GB of weights and 61 GB of copies do not fit together
  const Plan plan = plan_for(model, gpu);
  EXPECT_TRUE(plan.fits);
  EXPECT_TRUE(plan.dequantise);
  EXPECT_EQ(decision(plan, "gemm.weights").name, "dequantised");
  EXPECT_THAT(decision(plan, "gemm.weights").reason, HasSubstr("no room"));
  EXPECT_EQ(plan.unpack_bytes, 0u);

  const Plan unpacked = plan_for(model, without_warpgroups(gpu));
  EXPECT_EQ(decision(unpacked, "gemm.weights").name, "unpacked");
  EXPECT_GT(unpacked.unpack_bytes, 0u);
  EXPECT_EQ(unpacked.scratch_bytes - unpacked.unpack_bytes, plan.scratch_bytes);
}

TEST(WarpgroupPlan, CopiesAreReadWhereTheyFit) {
  const Plan plan = plan_for(model_of("31b", "q4_0"), made_up_gpu(90, 141));
  EXPECT_FALSE(plan.dequantise);
  EXPECT_EQ(decision(plan, "gemm.weights").name, "resident");
}

TEST(WarpgroupPlan, WishesAreGranted) {
  const model::Model& model = model_of("e4b", "q8_0");
  const GpuFacts gpu = made_up_gpu(90, 141);
  const Plan wished = plan_for(model, gpu, "gemm.weights=dequantised");
  EXPECT_TRUE(wished.dequantise);
  EXPECT_FALSE(wished.placement.resident_bf16);
  const Plan unpacked = plan_for(model, gpu, "gemm.weights=unpacked");
  EXPECT_FALSE(unpacked.dequantise);
  EXPECT_GT(unpacked.unpack_bytes, 0u);
}

TEST(WarpgroupPlan, WishesTheCardCannotGrantAreRefused) {
  for (const GpuFacts& gpu : {made_up_gpu(89, 24), without_warpgroups(made_up_gpu(90, 141))}) {
    for (const char* wish : {"gemm.weights=dequantised", "experts=wgmma"}) {
      try {
        plan_for(model_of("26b-a4b", "q4_0"), gpu, wish);
        ADD_FAILURE() << wish;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
        EXPECT_THAT(error.what(), HasSubstr(wish));
        EXPECT_THAT(error.what(), HasSubstr("9.0"));
      }
    }
  }
}

// A format no kernel of warpgroups reads is unpacked, the others are not: the scratch holds the largest that is.
TEST(WarpgroupPlan, OtherFormatsAreUnpacked) {
  const model::Model& model = model_of("e4b", "q4_k_m");  // some matrices are Q6_K
  const Plan plan = plan_for(model, made_up_gpu(90, 141), "gemm.weights=dequantised");
  EXPECT_GT(plan.unpack_bytes, 0u);
  EXPECT_LT(plan.unpack_bytes, plan_for(model, made_up_gpu(90, 141), "gemm.weights=unpacked").unpack_bytes);
}

TEST(WarpgroupPlan, ExpertsNeedNoCopies) {
  const model::Model& model = model_of("26b-a4b", "q4_0");
  const GpuFacts gpu = made_up_gpu(90, 141);
  const Plan plan = plan_for(model, gpu);
  EXPECT_TRUE(plan.warpgroup_experts);
  EXPECT_EQ(decision(plan, "experts").name, "wgmma");
  EXPECT_TRUE(plan.placement.resident_bf16);
  const Plan mma = plan_for(model, gpu, "experts=mma");
  EXPECT_EQ(decision(mma, "experts").name, "mma");
  const model::Config& config = model.config();
  uint64_t moe_layers = 0;
  for (const model::Layer& layer : config.layers) moe_layers += layer.moe ? 1 : 0;
  EXPECT_EQ(mma.weights.copies(mma.placement) - plan.weights.copies(plan.placement),
            moe_layers * config.experts * 3 * config.F_expert * config.d * 2);
  EXPECT_EQ(mma.total_bytes - plan.total_bytes, plan.weights.bf16_experts);
}

TEST(WarpgroupPlan, OtherCardsMultiplyExpertsByMma) {
  const Plan plan = plan_for(model_of("26b-a4b", "q4_0"), made_up_gpu(80, 80));
  EXPECT_FALSE(plan.warpgroup_experts);
  EXPECT_FALSE(plan.placement.packed_experts);
  EXPECT_EQ(decision(plan, "experts").name, "mma");
}

}  // namespace
}  // namespace carat::cuda
