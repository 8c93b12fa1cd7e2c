// Which decode steps the plan lets run batched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/cuda/kernels/skinny/skinny_rows.h"
#include "exec/cuda/plan/metadata_models.h"
#include "exec/cuda/plan/plan.h"
#include "exec/cuda/plan/synthetic_gpus.h"

namespace carat::cuda {
namespace {

using test::made_up_gpu;
using test::model_of;
using testing::HasSubstr;

Plan plan_of(const model::Model& model, uint32_t sequences, uint32_t outputs, std::string_view kernels = "") {
  PlanRequest request;
  request.sequences = sequences;
  request.outputs = outputs;
  request.kernels = exec::KernelChoices::parse(kernels);
  return make_plan(model, made_up_gpu(90, 141), request);
}

const KernelDecision& decision(const Plan& plan, std::string_view slot = "batch") {
  for (const KernelDecision& made : plan.kernels) {
    if (made.slot == slot) return made;
  }
  throw std::logic_error("the plan does not decide about " + std::string(slot));
}

TEST(BatchBuckets, HoldEveryNumberOfRows) {
  for (uint32_t rows = 1; rows <= kSkinnyRows; ++rows) {
    const uint32_t bucket = skinny_bucket(rows);
    EXPECT_GE(bucket, rows);
    EXPECT_GE(8 * skinny_tiles(bucket), bucket);
    EXPECT_TRUE(bucket == 8 || skinny_bucket(rows - 1) == bucket || skinny_filled_bucket(rows - 1) == rows - 1) << rows;
    EXPECT_LE(skinny_filled_bucket(rows), rows);
  }
  EXPECT_EQ(skinny_filled_bucket(7), 0u);
  EXPECT_EQ(skinny_filled_bucket(47), 32u);
}

TEST(PlanBatch, ResultsHaveRoomForWholeBuckets) {
  const model::Model& model = model_of("e4b", "q8_0");
  for (const uint32_t sequences : {1u, 9u, 17u, 33u, 64u, 100u}) {
    const Plan plan = plan_of(model, sequences, 1, "batch=mma");
    EXPECT_GE(plan.outputs, sequences);
    EXPECT_LE(plan.skinny_rows, plan.outputs);
    EXPECT_GE(plan.skinny_rows, std::min(sequences, kSkinnyRows)) << "every step of all sequences can run batched";
    EXPECT_EQ(skinny_bucket(plan.skinny_rows), plan.skinny_rows);
    EXPECT_EQ(decision(plan).name, "mma");
  }
  EXPECT_EQ(plan_of(model, 1, 64, "batch=mma").skinny_rows, 64u);
}

TEST(PlanBatch, CopiesTakeTheLargerSteps) {
  const model::Model& model = model_of("e4b", "q8_0");
  const Plan copies = plan_of(model, 64, 64), none = plan_of(model, 64, 64, "gemm.weights=unpacked");
  EXPECT_EQ(copies.skinny_rows, 32u);
  EXPECT_EQ(decision(copies).name, "mma");
  EXPECT_THAT(decision(copies).reason, HasSubstr("2 to 32 rows"));
  EXPECT_EQ(none.skinny_rows, 64u);
  EXPECT_THAT(decision(none).reason, HasSubstr("2 to 64 rows"));
}

TEST(PlanBatch, WishesAreGranted) {
  const model::Model& model = model_of("e4b", "q8_0");
  const Plan by_gemm = plan_of(model, 32, 64, "batch=gemm"), batched = plan_of(model, 32, 64, "batch=mma");
  EXPECT_EQ(by_gemm.skinny_rows, 0u);
  EXPECT_EQ(decision(by_gemm).name, "gemm");
  EXPECT_THAT(decision(by_gemm).reason, HasSubstr("asked for"));
  EXPECT_EQ(batched.skinny_rows, 64u);
  EXPECT_LT(by_gemm.scratch_bytes, batched.scratch_bytes);
  EXPECT_EQ(plan_of(model, 32, 64, "decode=gemm").skinny_rows, 0u) << "every pass by matrix products";
  EXPECT_EQ(plan_of(model, 32, 64, "decode=gemm,batch=mma").skinny_rows, 64u);
}

TEST(PlanBatch, ExpertsRunByMatrixProducts) {
  const model::Model& model = model_of("26b-a4b", "q4_0");
  const Plan plan = plan_of(model, 32, 64);
  EXPECT_EQ(plan.skinny_rows, 0u);
  EXPECT_EQ(decision(plan).name, "gemm");
  EXPECT_THAT(decision(plan).reason, HasSubstr("expert"));
  try {
    plan_of(model, 32, 64, "batch=mma");
    FAIL() << "granted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(), HasSubstr("batch=mma"));
  }
}

TEST(PlanBatch, TheEndOfALayerInOneKernel) {
  const model::Model& model = model_of("e4b", "q8_0");
  const Plan plan = plan_of(model, 32, 64), wished = plan_of(model, 32, 64, "batch.ple=products");
  EXPECT_TRUE(plan.cluster_ple);
  EXPECT_EQ(decision(plan, "batch.ple").name, "cluster");
  EXPECT_FALSE(wished.cluster_ple);
  EXPECT_THAT(decision(wished, "batch.ple").reason, HasSubstr("asked for"));
  EXPECT_TRUE(plan_of(model_of("e2b", "q4_0"), 8, 8).cluster_ple);

  const auto without = [&](const model::Model& which, uint32_t capability, const char* why, std::string_view kernels) {
    PlanRequest request;
    request.kernels = exec::KernelChoices::parse(kernels);
    const Plan other = make_plan(which, made_up_gpu(capability, 80), request);
    EXPECT_FALSE(other.cluster_ple);
    EXPECT_THAT(decision(other, "batch.ple").reason, HasSubstr(why));
    request.kernels =
        exec::KernelChoices::parse(std::string(kernels) + (kernels.empty() ? "" : ",") + "batch.ple=cluster");
    EXPECT_THROW(make_plan(which, made_up_gpu(capability, 80), request), Error);
  };
  without(model, 80, "9.0", "");
  without(model, 90, "mmq", "gemm=mmq");
  without(model_of("e4b", "bf16"), 90, "inp_gate", "");
  EXPECT_THROW(decision(plan_of(model_of("12b", "q4_0"), 8, 8), "batch.ple"), std::logic_error) << "no such embeddings";
}

TEST(PlanBatch, AttentionMakesItsOwnHeads) {
  for (const char* preset : {"e2b", "e4b", "12b", "26b-a4b", "31b"}) {
    EXPECT_TRUE(plan_of(model_of(preset, "q4_0"), 8, 8).step_heads) << preset;
  }
  const model::Model& model = model_of("e4b", "q8_0");
  EXPECT_FALSE(plan_of(model, 8, 8, "batch.heads=separate").step_heads);
  PlanRequest request;
  request.kv_format = quant::Format::kQ8_0;
  const Plan quantised = make_plan(model, made_up_gpu(90, 141), request);
  EXPECT_FALSE(quantised.step_heads);
  EXPECT_THAT(decision(quantised, "batch.heads").reason, HasSubstr("F16"));
  request.kernels = exec::KernelChoices::parse("batch.heads=attention");
  EXPECT_THROW(make_plan(model, made_up_gpu(90, 141), request), Error);
}

}  // namespace
}  // namespace carat::cuda
