// What a plan says about the cache's type and about long prompts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "exec/cuda/plan/metadata_models.h"
#include "exec/cuda/plan/plan.h"
#include "exec/cuda/plan/plans.h"
#include "exec/cuda/plan/synthetic_gpus.h"
#include "exec/executor.h"

namespace carat::cuda {
namespace {

using test::decision;
using test::made_up_gpu;
using test::model_of;
using test::request_of;
using testing::HasSubstr;

TEST(PlanAttention, AQuantisedCacheTakesHalfAndFitsTwiceTheContext) {
  const model::Model& model = model_of("12b", "q4_0");
  const GpuFacts gpu = made_up_gpu(89, 12);
  PlanRequest request = request_of(16'384);
  request.chunk = 512;
  const Plan half = make_plan(model, gpu, request);
  request.kv_format = quant::Format::kQ8_0;
  const Plan quantised = make_plan(model, gpu, request);
  EXPECT_EQ(quantised.kv_format, quant::Format::kQ8_0);
  // Heads of 256 and 512: a byte for each value and two for 32 of them.
  EXPECT_EQ(quantised.kv_bytes * 32, half.kv_bytes * 17);
  EXPECT_EQ(half.total_bytes - quantised.total_bytes, half.kv_bytes - quantised.kv_bytes);
  EXPECT_GT(quantised.largest_context_now, half.largest_context_now);
}

TEST(PlanAttention, CacheTypesTheKernelsDoNotHaveAreRefused) {
  const model::Model& model = model_of("e4b", "q8_0");
  PlanRequest request = request_of(4096);
  for (const quant::Format format : {quant::Format::kF32, quant::Format::kQ4_0}) {
    request.kv_format = format;
    try {
      make_plan(model, made_up_gpu(90, 141), request);
      ADD_FAILURE() << quant::info(format).name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr("-ctk"));
    }
  }
}

TEST(PlanAttention, WarpgroupsWhereTheGpuHasThem) {
  for (const char* name : {"e2b", "e4b", "12b", "26b-a4b", "31b"}) {
    SCOPED_TRACE(name);
    const model::Model& model = model_of(name, "q4_0");
    const Plan plan = make_plan(model, made_up_gpu(90, 141), request_of(4096));
    EXPECT_EQ(decision(plan, "attention"), "warpgroups");
    EXPECT_EQ(plan.attention_shared_memory, 227u * 1024);  // for what is not by warpgroups
    for (const model::Layer& layer : model.config().layers) {
      const AttentionShape shape{layer.H, layer.Hkv, layer.hd, layer.sliding ? model.config().W : 0};
      EXPECT_TRUE(attention_by_warpgroups(plan, shape)) << "layer " << layer.index;
    }
    for (const uint32_t capability : {80u, 89u, 100u, 120u}) {
      const Plan other = make_plan(model, made_up_gpu(capability, 141), request_of(4096));
      EXPECT_FALSE(other.warpgroup_attention) << capability;
      EXPECT_NE(decision(other, "attention"), "warpgroups") << capability;
    }
  }
}

TEST(PlanAttention, OtherTilesWhereTheyAreAskedFor) {
  const model::Model& model = model_of("e4b", "q8_0");
  for (const char* name : {"large", "small"}) {
    const Plan plan = make_plan(model, made_up_gpu(90, 141), request_of(4096, "attention=" + std::string(name)));
    EXPECT_EQ(decision(plan, "attention"), name);
    EXPECT_FALSE(attention_by_warpgroups(plan, {8, 2, 256, 512}));
  }
}

TEST(PlanAttention, WarpgroupsNeedAnF16CacheAndTheirHeads) {
  const model::Model& model = model_of("e4b", "q8_0");
  PlanRequest request = request_of(4096);
  request.kv_format = quant::Format::kQ8_0;
  const Plan plan = make_plan(model, made_up_gpu(90, 141), request);
  EXPECT_EQ(decision(plan, "attention"), "large");
  const auto refusal = [](const model::Model& asked, const GpuFacts& gpu, const PlanRequest& wishes) {
    try {
      make_plan(asked, gpu, wishes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  request.kernels = exec::KernelChoices::parse("attention=warpgroups");
  EXPECT_THAT(refusal(model, made_up_gpu(90, 141), request), HasSubstr("a cache in F16"));
  const PlanRequest asking = request_of(4096, "attention=warpgroups");
  EXPECT_THAT(refusal(model, made_up_gpu(89, 24), asking), HasSubstr("no products of warpgroups"));
  // A window and 512 columns, and heads of any other size, are the other kernels'.
  const Plan warpgroups = make_plan(model, made_up_gpu(90, 141), asking);
  EXPECT_FALSE(attention_by_warpgroups(warpgroups, {8, 2, 512, 1024}));
  EXPECT_FALSE(attention_by_warpgroups(warpgroups, {8, 2, 128, 0}));
}

TEST(PlanAttention, LayersThatChooseTheirKeysAreNotByWarpgroups) {
  const model::Model& model = model_of("e4b", "q8_0");
  const Plan plan = make_plan(model, made_up_gpu(90, 141), request_of(131'072, "attention.long=sparse"));
  EXPECT_EQ(decision(plan, "attention"), "warpgroups");
  EXPECT_TRUE(attention_by_warpgroups(plan, {8, 2, 256, 512}));
  EXPECT_FALSE(attention_by_warpgroups(plan, {8, 2, 512, 0}));
}

TEST(PlanAttention, LongPromptsAreSparseOnlyWhenAskedFor) {
  const model::Model& model = model_of("e4b", "q8_0");
  const Plan dense = make_plan(model, made_up_gpu(90, 141), request_of(131'072));
  EXPECT_FALSE(dense.sparse.has_value());
  EXPECT_EQ(decision(dense, "attention.long"), "dense");
  const Plan sparse = make_plan(model, made_up_gpu(90, 141), request_of(131'072, "attention.long=sparse"));
  ASSERT_TRUE(sparse.sparse.has_value());
  EXPECT_EQ(sparse.sparse->from, 16384u);
  EXPECT_EQ(decision(sparse, "attention.long"), "sparse");
  EXPECT_GT(sparse.scratch_bytes, dense.scratch_bytes);
}

TEST(PlanAttention, SparseIsRefusedWhereItCannotRun) {
  const model::Model& model = model_of("e4b", "q8_0");
  const auto refusal = [&](const GpuFacts& gpu, std::string_view kernels) {
    try {
      make_plan(model, gpu, request_of(32'768, kernels));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal(made_up_gpu(89, 24), "attention.long=sparse"), HasSubstr("shared memory"));
  EXPECT_THAT(refusal(made_up_gpu(90, 141), "attention.long=sparse,attention=small"), HasSubstr("attention=small"));
}

}  // namespace
}  // namespace carat::cuda
