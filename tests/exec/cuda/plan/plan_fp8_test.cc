// When a plan has e4m3 products and what that takes, and when the library's algorithms are searched.
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

using test::decision;
using test::made_up_gpu;
using test::made_up_gpus;
using test::model_of;
using test::request_of;
using testing::HasSubstr;

Plan plan_for(const model::Model& model, const GpuFacts& gpu, std::string_view kernels,
              std::optional<uint32_t> layers = exec::kAllLayers) {
  PlanRequest request = request_of(4096, kernels);
  request.gpu_layers = layers;
  return make_plan(model, gpu, request);
}

std::string refusal(const model::Model& model, const GpuFacts& gpu, std::string_view kernels,
                    std::optional<uint32_t> layers = exec::kAllLayers) {
  try {
    plan_for(model, gpu, kernels, layers);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    return error.what();
  }
  ADD_FAILURE() << kernels << " was granted";
  return "";
}

TEST(Fp8Plan, IsNeverChosenUnasked) {
  for (const char* preset : {"e4b", "12b", "26b-a4b"}) {
    for (const GpuFacts& gpu : made_up_gpus()) {
      const Plan plan = plan_for(model_of(preset, "q4_0"), gpu, "", std::nullopt);
      EXPECT_NE(decision(plan, "gemm"), "fp8");
      EXPECT_FALSE(plan.placement.resident_fp8);
      EXPECT_EQ(plan.weights.fp8_copies(plan.placement), 0u);
    }
  }
}

TEST(Fp8Plan, TakesAByteForAWeightOfTheLayers) {
  for (const char* preset : {"e2b", "e4b", "12b", "26b-a4b", "31b"}) {
    const model::Model& model = model_of(preset, "q4_0");
    const GpuFacts gpu = made_up_gpu(90, 141);
    const Plan plan = plan_for(model, gpu, "gemm=fp8"), bf16 = plan_for(model, gpu, "gemm=cublas");
    EXPECT_TRUE(plan.fits) << preset;
    EXPECT_EQ(plan.gemm.kind, GemmKind::kFp8);
    EXPECT_EQ(decision(plan, "gemm"), "fp8");
    EXPECT_TRUE(plan.placement.resident_fp8 && plan.placement.resident_bf16);
    uint64_t weights = 0, rows = 0;
    for (const model::LayerWeights& layer : model.weights().layers) {
      for (const model::Matrix* matrix : {&layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.attn_output,
                                          &layer.ffn_gate, &layer.ffn_up, &layer.ffn_down}) {
        weights += matrix->rows * matrix->cols;
        rows += matrix->rows;
      }
    }
    EXPECT_EQ(plan.weights.fp8, weights + 4 * rows) << preset;  // real widths leave nothing to pad
    EXPECT_EQ(plan.weights.bf16_as_fp8, 2 * weights);
    EXPECT_EQ(bf16.weights.copies(bf16.placement) - plan.weights.copies(plan.placement), weights - 4 * rows);
    // Activations of one product in bytes, and a scale for each row.
    EXPECT_GT(plan.scratch_bytes, bf16.scratch_bytes);
    EXPECT_EQ(plan.unpack_bytes, 0u);
  }
}

// Steps of many sequences need no matrix products where the layers have no bf16 copies: more of them run batched.
TEST(Fp8Plan, LeavesDecodeExact) {
  PlanRequest request;
  request.sequences = 64;
  request.kernels = exec::KernelChoices::parse("gemm=fp8");
  EXPECT_EQ(make_plan(model_of("e4b", "q8_0"), made_up_gpu(90, 141), request).skinny_rows, 64u);
}

// The bf16 copies of the others are given up before anything is said not to fit.
TEST(Fp8Plan, GivesUpTheOtherCopiesFirst) {
  const model::Model& model = model_of("12b", "q4_0");
  const WeightBytes bytes = weight_bytes(model, 0);
  GpuFacts gpu = made_up_gpu(90, 141);
  gpu.free_bytes = bytes.packed + bytes.vectors + bytes.fp8 + (uint64_t{6} << 30) / 2;
  const Plan plan = plan_for(model, gpu, "gemm=fp8");
  EXPECT_TRUE(plan.fits);
  EXPECT_TRUE(plan.placement.resident_fp8);
  EXPECT_EQ(plan.unpack_bytes, 0u);
}

TEST(Fp8Plan, OtherCardsRefuse) {
  for (const uint32_t capability : {80u, 86u, 89u, 100u, 120u}) {
    EXPECT_THAT(refusal(model_of("e4b", "q8_0"), made_up_gpu(capability, 80), "gemm=fp8"),
                testing::AllOf(HasSubstr("gemm=fp8"), HasSubstr("9.0"), HasSubstr("leave it out")));
  }
  GpuFacts old_library = made_up_gpu(90, 141);
  old_library.row_scaled_fp8 = false;
  EXPECT_THAT(refusal(model_of("e4b", "q8_0"), old_library, "gemm=fp8"), HasSubstr("12.9"));
}

TEST(Fp8Plan, ContradictionsAreRefused) {
  const model::Model& model = model_of("e4b", "q8_0");
  for (const char* wishes : {"gemm=fp8,gemm.weights=resident", "gemm=fp8,gemm.weights=unpacked",
                             "gemm=fp8,gemm.weights=dequantised", "gemm=fp8,activations=int8"}) {
    EXPECT_THAT(refusal(model, made_up_gpu(90, 141), wishes), HasSubstr("leave one out"));
  }
}

// Layers are not moved to the CPU for it.
TEST(Fp8Plan, CopiesThatDoNotFitAreAnError) {
  for (const std::optional<uint32_t> layers : {std::optional<uint32_t>(), std::optional(exec::kAllLayers)}) {
    EXPECT_THAT(refusal(model_of("31b", "q4_0"), made_up_gpu(90, 40), "gemm=fp8", layers),
                testing::AllOf(HasSubstr("gemm=fp8"), HasSubstr("are free")));
  }
  const Plan some = plan_for(model_of("31b", "q4_0"), made_up_gpu(90, 40), "gemm=fp8", 20);
  EXPECT_TRUE(some.fits);
  EXPECT_LT(some.weights.fp8, weight_bytes(model_of("31b", "q4_0"), 0).fp8);
}

TEST(GemmSearchPlan, SearchesWhereTheLibraryReadsCopies) {
  const model::Model& model = model_of("12b", "q4_0");
  const Plan copies = plan_for(model, made_up_gpu(90, 141), "");
  EXPECT_TRUE(copies.search);
  EXPECT_EQ(decision(copies, "gemm.search"), "on");
  const Plan off = plan_for(model, made_up_gpu(90, 141), "gemm.search=off");
  EXPECT_FALSE(off.search);
  EXPECT_EQ(decision(off, "gemm.search"), "off");
  EXPECT_TRUE(plan_for(model, made_up_gpu(90, 141), "gemm=fp8").search);
  EXPECT_FALSE(plan_for(model, made_up_gpu(89, 24), "").search);  // integer products
  EXPECT_FALSE(plan_for(model, made_up_gpu(90, 141), "gemm.weights=unpacked").search);
  EXPECT_THAT(refusal(model, made_up_gpu(89, 24), "gemm.search=on"), HasSubstr("gemm.search=on"));
}

}  // namespace
}  // namespace carat::cuda
