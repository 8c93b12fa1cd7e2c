#include "exec/cuda/plan/gemm_choice.h"

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
using test::model_of;
using test::request_of;
using testing::HasSubstr;

GemmChoice choose(const model::Model& model, uint32_t capability, std::string_view wishes, bool copies = true) {
  return choose_gemm(model, made_up_gpu(capability, 24), exec::KernelChoices::parse(wishes), 0, copies);
}

Plan plan_for(const model::Model& model, const GpuFacts& gpu, std::string_view kernels, uint32_t context = 4096) {
  return make_plan(model, gpu, request_of(context, kernels));
}

TEST(GemmChoice, CardsWithFastIntegersReadQuantisedWeights) {
  for (const char* recipe : {"q8_0", "q4_k_m"}) {
    const model::Model& model = model_of("e4b", recipe);
    for (const uint32_t capability : {86u, 89u, 120u}) {
      for (const bool copies : {true, false}) {
        const GemmChoice choice = choose(model, capability, "", copies);
        EXPECT_EQ(choice.kind, GemmKind::kMmq) << capability;
        EXPECT_EQ(choice.activations, MmqActivations::kInt16);
        EXPECT_THAT(choice.reason, HasSubstr("integers"));
      }
    }
  }
}

TEST(GemmChoice, AmpereServersOnlyWithoutCopiesAndHopperNever) {
  const model::Model& model = model_of("12b", "q4_0");
  EXPECT_EQ(choose(model, 80, "", true).kind, GemmKind::kLibrary);
  EXPECT_EQ(choose(model, 80, "", false).kind, GemmKind::kMmq);
  for (const bool copies : {true, false}) {
    for (const uint32_t capability : {90u, 100u}) {
      EXPECT_EQ(choose(model, capability, "", copies).kind, GemmKind::kLibrary);
    }
  }
}

TEST(GemmChoice, WithoutQuantisedWeightsThereIsNothingToRead) {
  const model::Model& model = model_of("31b", "bf16");
  for (const uint32_t capability : {80u, 86u, 89u, 90u, 120u}) {
    EXPECT_EQ(choose(model, capability, "", false).kind, GemmKind::kLibrary);
  }
  try {
    choose(model, 89, "gemm=mmq");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(), HasSubstr("gemm=mmq"));
  }
}

TEST(GemmChoice, WishesComeFirst) {
  const model::Model& model = model_of("e4b", "q8_0");
  EXPECT_EQ(choose(model, 89, "gemm=cublas").kind, GemmKind::kLibrary);
  EXPECT_EQ(choose(model, 89, "gemm.weights=resident").kind, GemmKind::kLibrary);
  EXPECT_EQ(choose(model, 89, "gemm.weights=unpacked").kind, GemmKind::kLibrary);
  EXPECT_EQ(choose(model, 90, "gemm=mmq").kind, GemmKind::kMmq);
  EXPECT_EQ(choose(model, 90, "gemm=mmq,gemm.weights=unpacked").kind, GemmKind::kMmq);
  EXPECT_EQ(choose(model, 90, "gemm=mmq").activations, MmqActivations::kInt16);
  EXPECT_EQ(choose(model, 90, "gemm=mmq,activations=int8").activations, MmqActivations::kInt8);
  EXPECT_EQ(choose(model, 90, "activations=int8").kind, GemmKind::kMmq);
}

TEST(GemmChoice, WishesThatContradictEachOtherAreRefused) {
  const model::Model& model = model_of("e4b", "q8_0");
  for (const char* wishes : {"gemm=mmq,gemm.weights=resident", "gemm=cublas,activations=int8"}) {
    try {
      choose(model, 89, wishes);
      ADD_FAILURE() << wishes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
      EXPECT_THAT(error.what(), HasSubstr("leave one out"));
    }
  }
}

TEST(GemmChoice, PlansSayWhatTheyChoseAndTakeTheMemoryForIt) {
  const model::Model& model = model_of("12b", "q4_0");
  const Plan mmq = plan_for(model, made_up_gpu(89, 24), "");
  EXPECT_EQ(decision(mmq, "gemm"), "mmq");
  EXPECT_EQ(decision(mmq, "activations"), "int16");
  EXPECT_EQ(decision(mmq, "gemm.weights"), "unpacked");
  EXPECT_FALSE(mmq.placement.resident_bf16);
  EXPECT_EQ(mmq.unpack_bytes, 0u);  // every matrix of its layers is quantised
  EXPECT_EQ(mmq.chunk, 2048u);
  EXPECT_THAT(mmq.chunk_reason, HasSubstr("full speed"));

  const Plan library = plan_for(model, made_up_gpu(89, 24), "gemm=cublas");
  EXPECT_EQ(decision(library, "gemm"), "cublas");
  EXPECT_EQ(decision(library, "activations"), "");
  EXPECT_GT(library.unpack_bytes, 0u);

  const Plan coarse = plan_for(model, made_up_gpu(89, 24), "activations=int8");
  EXPECT_EQ(decision(coarse, "activations"), "int8");
  // A byte less for each value of the widest input, rows rounded up to whole tiles.
  EXPECT_EQ(mmq.scratch_bytes - coarse.scratch_bytes, uint64_t{2048} * 15360);
}

// Copies fit in 80 GB and not in 24: the smaller card does without them in another way.
TEST(GemmChoice, AnAmpereServerChoosesByItsMemory) {
  const model::Model& model = model_of("12b", "q4_0");
  const Plan roomy = plan_for(model, made_up_gpu(80, 80), "");
  EXPECT_EQ(decision(roomy, "gemm"), "cublas");
  EXPECT_TRUE(roomy.placement.resident_bf16);
  const Plan tight = plan_for(model, made_up_gpu(80, 24), "");
  EXPECT_EQ(decision(tight, "gemm"), "mmq");
  EXPECT_TRUE(tight.fits);
}

// Experts and float matrices go through the library still, and their weights need room to be unpacked in.
TEST(GemmChoice, WhatIsNotMultipliedByItIsUnpacked) {
  const Plan experts = plan_for(model_of("26b-a4b", "q4_0"), made_up_gpu(89, 24), "");
  EXPECT_EQ(decision(experts, "gemm"), "mmq");
  EXPECT_GT(experts.unpack_bytes, 0u);
}

}  // namespace
}  // namespace carat::cuda
