#include "exec/cuda/executor/pass_kind.h"

#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "exec/cuda/plan/metadata_models.h"
#include "exec/cuda/plan/plans.h"
#include "exec/cuda/plan/synthetic_gpus.h"

namespace carat::cuda {

std::ostream& operator<<(std::ostream& out, PassKind kind) {
  constexpr const char* kNames[] = {"prompt",      "prompt bucket", "prompt gemv", "decode megakernel",
                                    "decode gemv", "decode skinny", "decode gemm"};
  return out << kNames[static_cast<size_t>(kind)];
}

namespace {

enum class Wants { kNone, kLast, kAll };

// `count` rows of one sequence from position `first` on.
std::vector<exec::Row> prompt(uint32_t count, Wants wants, uint32_t first = 0, uint32_t sequence = 0) {
  std::vector<exec::Row> rows;
  for (uint32_t i = 0; i < count; ++i) {
    const bool wanted = wants == Wants::kAll || (wants == Wants::kLast && i + 1 == count);
    rows.push_back({1, first + i, sequence, wanted});
  }
  return rows;
}

// One row of each of `count` sequences, all of which want logits.
std::vector<exec::Row> step(uint32_t count) {
  std::vector<exec::Row> rows;
  for (uint32_t s = 0; s < count; ++s) rows.push_back({1, 10 + s, s, true});
  return rows;
}

// A plan that has every way to run rows.
Plan full_plan() {
  Plan plan;
  plan.sequences = 200;
  plan.chunk = 1024;
  plan.outputs = 224;
  plan.use_gemv = plan.use_megakernel = true;
  plan.skinny_from = 2;
  plan.skinny_rows = 64;
  return plan;
}
// One in which decode steps of several rows are by matrix-vector kernels, and larger ones by matrix products.
Plan without_skinny(Plan plan = full_plan()) {
  plan.skinny_from = plan.skinny_rows = 0;
  return plan;
}
Plan without_kernels() {
  Plan plan = without_skinny();
  plan.use_gemv = plan.use_megakernel = false;
  return plan;
}

TEST(PassKind, OneRow) {
  const PassClass pass = classify(step(1), full_plan());
  EXPECT_EQ(pass.kind, PassKind::kDecodeMegakernel);
  EXPECT_EQ(pass.rows, 1u);
  EXPECT_EQ(pass.outputs, 1u);
  EXPECT_EQ(classify(step(1), full_plan(), true).kind, PassKind::kDecodeGemv) << "its kernels are to be timed";
  Plan plan = full_plan();
  plan.use_megakernel = false;
  EXPECT_EQ(classify(step(1), plan).kind, PassKind::kDecodeGemv);
  EXPECT_EQ(classify(step(1), without_kernels()).kind, PassKind::kDecodeGemm);
  const PassClass silent = classify(prompt(1, Wants::kNone), full_plan());
  EXPECT_EQ(silent.kind, PassKind::kPromptGemv);
  EXPECT_EQ(silent.outputs, 0u);
}

TEST(PassKind, AFewRowsOfDifferentSequences) {
  for (const uint32_t count : {2u, 3u, 8u, 9u, 31u, 32u, 33u, 64u}) {
    const PassClass pass = classify(step(count), full_plan());
    EXPECT_EQ(pass.kind, PassKind::kDecodeSkinny) << count;
    EXPECT_EQ(pass.rows, skinny_bucket(count)) << count;
    EXPECT_EQ(pass.outputs, count);
    EXPECT_TRUE(pass.single_rows);
  }
  for (const uint32_t count : {2u, 3u, 5u, 8u}) {
    const PassClass pass = classify(step(count), without_skinny());
    EXPECT_EQ(pass.kind, PassKind::kDecodeGemv) << count;
    EXPECT_EQ(pass.rows, count == 2 ? 2u : count == 3 ? 4u : 8u);
  }
}

TEST(PassKind, MoreRowsOfDifferentSequences) {
  for (const uint32_t count : {65u, 96u, 97u, 200u}) {
    const PassClass pass = classify(step(count), full_plan());
    EXPECT_EQ(pass.kind, PassKind::kDecodeGemm) << count;
    EXPECT_EQ(pass.rows, (count + 31) / 32 * 32);
    EXPECT_EQ(pass.outputs, count);
    EXPECT_TRUE(pass.single_rows);
  }
  for (const uint32_t count : {9u, 64u, 65u}) {
    EXPECT_EQ(classify(step(count), without_skinny()).kind, PassKind::kDecodeGemm) << count;
    EXPECT_EQ(classify(step(count), without_kernels()).kind, PassKind::kDecodeGemm) << count;
  }
  EXPECT_EQ(classify(step(9), without_skinny()).rows, 16u);
}

TEST(PassKind, SkinnyStepsBeginAndEndWhereThePlanSays) {
  Plan plan = full_plan();
  plan.skinny_rows = 32;  // beside bf16 copies of the weights
  EXPECT_EQ(classify(step(32), plan).kind, PassKind::kDecodeSkinny);
  EXPECT_EQ(classify(step(33), plan).kind, PassKind::kDecodeGemm);
  EXPECT_EQ(classify(step(33), plan).rows, 48u);
  plan.skinny_from = 9;
  EXPECT_EQ(classify(step(8), plan).kind, PassKind::kDecodeGemv);
  EXPECT_EQ(classify(step(9), plan).kind, PassKind::kDecodeSkinny);
}

// Drafts that are tried: the rows of a sequence follow one another, and all want logits.
TEST(PassKind, RowsOfOneSequenceThatAllWantLogits) {
  const PassClass pass = classify(prompt(4, Wants::kAll, 30), full_plan());
  EXPECT_EQ(pass.kind, PassKind::kDecodeSkinny);
  EXPECT_EQ(pass.rows, 8u);
  EXPECT_FALSE(pass.single_rows);
  EXPECT_EQ(classify(prompt(4, Wants::kAll), without_skinny()).kind, PassKind::kDecodeGemv);
  EXPECT_EQ(classify(prompt(9, Wants::kAll), without_skinny()).kind, PassKind::kPrompt) << "they see one another";
  EXPECT_EQ(classify(prompt(9, Wants::kAll), without_skinny()).rows, 9u);
}

TEST(PassKind, ABucketOfProductsNeedsItsRoom) {
  Plan plan = without_skinny();
  plan.outputs = 20;
  EXPECT_EQ(classify(step(16), plan).kind, PassKind::kDecodeGemm);
  EXPECT_EQ(classify(step(17), plan).kind, PassKind::kPrompt) << "24 rows are more than 20 outputs";
  plan.outputs = 224;
  plan.chunk = 20;
  EXPECT_EQ(classify(step(16), plan).kind, PassKind::kDecodeGemm);
  EXPECT_EQ(classify(step(17), plan).kind, PassKind::kPrompt) << "nor in a chunk of 20";
}

TEST(PassKind, RowsThatDoNotAllWantLogits) {
  for (const uint32_t count : {2u, 3u, 8u}) {
    for (const Wants wants : {Wants::kNone, Wants::kLast}) {
      const PassClass pass = classify(prompt(count, wants), full_plan());
      EXPECT_EQ(pass.kind, PassKind::kPromptGemv) << count;
      EXPECT_EQ(pass.rows, count == 2 ? 2u : count == 3 ? 4u : 8u);
      EXPECT_EQ(pass.outputs, wants == Wants::kNone ? 0u : 1u);
    }
  }
  EXPECT_EQ(classify(prompt(2, Wants::kLast), without_kernels()).kind, PassKind::kPrompt);
  std::vector<exec::Row> rows = step(20);
  rows[7].wants_logits = false;
  EXPECT_EQ(classify(rows, full_plan()).kind, PassKind::kPrompt);
  EXPECT_EQ(classify(rows, full_plan()).outputs, 19u);
}

TEST(PassKind, ChunksOfOnePrompt) {
  struct Case {
    uint32_t count, bucket;
  };
  for (const Case& c : {Case{9, 16}, {16, 16}, {17, 32}, {64, 64}, {65, 96}, {256, 256}, {257, 320}, {512, 512}}) {
    for (const Wants wants : {Wants::kNone, Wants::kLast}) {
      const PassClass pass = classify(prompt(c.count, wants, 7, 3), full_plan());
      EXPECT_EQ(pass.kind, PassKind::kPromptBucket) << c.count;
      EXPECT_EQ(pass.rows, c.bucket) << c.count;
    }
  }
  EXPECT_EQ(classify(prompt(513, Wants::kLast), full_plan()).kind, PassKind::kPrompt);
  EXPECT_EQ(classify(prompt(513, Wants::kLast), full_plan()).rows, 513u);
  Plan plan = full_plan();
  plan.chunk = 100;
  EXPECT_EQ(classify(prompt(97, Wants::kLast), plan).rows, 100u) << "no bucket is larger than a chunk";
  EXPECT_EQ(classify(prompt(40, Wants::kLast), without_kernels()).kind, PassKind::kPrompt);
}

TEST(PassKind, OtherMixesOfRowsAreNotPadded) {
  std::vector<exec::Row> rows = prompt(40, Wants::kLast);
  rows[20].wants_logits = true;
  EXPECT_EQ(classify(rows, full_plan()).kind, PassKind::kPrompt) << "a row within wants logits";
  rows = prompt(40, Wants::kLast);
  rows.push_back({1, 5, 1, true});
  EXPECT_EQ(classify(rows, full_plan()).kind, PassKind::kPrompt) << "another sequence decodes beside it";
  EXPECT_EQ(classify(rows, full_plan()).rows, 41u);
}

TEST(PassKind, SparseAttentionAndLayersOnTheCpuAreNotPaddedForProducts) {
  Plan sparse = full_plan(), split = full_plan();
  sparse.sparse = SparseAttention{};
  split.placement.first_layer = 2;
  split.use_megakernel = false;  // as make_plan() has it
  for (const Plan& plan : {sparse, split}) {
    EXPECT_EQ(classify(prompt(40, Wants::kLast), plan).kind, PassKind::kPrompt);
    EXPECT_EQ(classify(step(65), plan).kind, PassKind::kPrompt);
    EXPECT_EQ(classify(step(64), plan).kind, PassKind::kDecodeSkinny);
    EXPECT_EQ(classify(step(8), without_skinny(plan)).kind, PassKind::kDecodeGemv);
    EXPECT_EQ(classify(prompt(8, Wants::kLast), plan).kind, PassKind::kPromptGemv);
  }
  EXPECT_EQ(classify(step(1), split).kind, PassKind::kDecodeGemv);
}

// Experts' rows are sorted by matrix products only, and a table of per-layer embeddings in host memory has no say.
TEST(PassKind, PlansOfRealModels) {
  PlanRequest request = test::request_of(4096);
  request.sequences = 100;
  const GpuFacts gpu = test::made_up_gpu(90, 141);
  const Plan experts = make_plan(test::model_of("26b-a4b", "q4_0"), gpu, request);
  EXPECT_EQ(classify(step(1), experts).kind, PassKind::kDecodeMegakernel);
  EXPECT_EQ(classify(step(2), experts).kind, PassKind::kDecodeGemv);
  EXPECT_EQ(classify(step(8), experts).kind, PassKind::kDecodeGemv);
  EXPECT_EQ(classify(step(9), experts).kind, PassKind::kDecodeGemm);
  EXPECT_EQ(classify(step(100), experts).kind, PassKind::kDecodeGemm);
  EXPECT_EQ(classify(prompt(100, Wants::kLast), experts).kind, PassKind::kPromptBucket);

  request.kernels = exec::KernelChoices::parse("ple.table=host");
  const Plan table = make_plan(test::model_of("e4b", "q8_0"), gpu, request);
  EXPECT_EQ(classify(step(1), table).kind, PassKind::kDecodeMegakernel);
  EXPECT_EQ(classify(step(32), table).kind, PassKind::kDecodeSkinny);
  EXPECT_EQ(classify(step(33), table).kind, PassKind::kDecodeGemm) << "beside copies of the weights";
  EXPECT_EQ(classify(prompt(100, Wants::kLast), table).kind, PassKind::kPromptBucket);
}

TEST(PassKind, GraphsOfThoseThatRepeat) {
  Plan plan = full_plan();
  for (const PassKind kind : {PassKind::kDecodeMegakernel, PassKind::kDecodeGemv, PassKind::kDecodeSkinny,
                              PassKind::kDecodeGemm, PassKind::kPromptBucket}) {
    EXPECT_TRUE(runs_as_graph(kind, plan)) << kind;
  }
  EXPECT_FALSE(runs_as_graph(PassKind::kPrompt, plan));
  EXPECT_FALSE(runs_as_graph(PassKind::kPromptGemv, plan));
  // What is switched off is launched kernel by kernel; the kind stays.
  plan.use_graphs = false;
  EXPECT_FALSE(runs_as_graph(PassKind::kDecodeSkinny, plan));
  EXPECT_TRUE(runs_as_graph(PassKind::kPromptBucket, plan));
  EXPECT_EQ(classify(step(8), plan).kind, PassKind::kDecodeSkinny);
  plan.prompt_graphs = false;
  EXPECT_FALSE(runs_as_graph(PassKind::kPromptBucket, plan));
  EXPECT_EQ(classify(prompt(40, Wants::kLast), plan).kind, PassKind::kPromptBucket);
}

}  // namespace
}  // namespace carat::cuda
