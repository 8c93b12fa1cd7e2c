// What a plan says about the cache's type and about long prompts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "exec/cuda/hollow_models.h"
#include "exec/cuda/made_up_gpus.h"
#include "exec/cuda/plan.h"
#include "exec/cuda/plans.h"
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
