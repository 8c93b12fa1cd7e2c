// The token kernel on the emulated machine, whole models against the reference executor: what
// tests/parity/cuda_token_test.cc tests on the card is tested without one here, with threads that run in any order. The
// models are as small as they can be with heads of the real sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "exec/cuda/emulated/megakernel_decoder.h"
#include "exec/reference/reference_executor.h"
#include "support/logit_error.h"

namespace carat::cuda {
namespace {

using emulated::MegakernelDecoder;
using quant::Format;
using test::TinyKind;
using test::TinyShape;

constexpr uint32_t kContext = 512;

// Two layers, or where caches are shared four: a sliding and a global one of either kind.
TinyShape shape_for(TinyKind kind) {
  TinyShape shape = test::tiny_shape(kind, 256);
  const bool shares = shape.shared > 0;
  shape.hd_sliding = 256, shape.hd_global = 512;
  shape.L = shares ? 4 : 2, shape.period = 2, shape.shared = shares ? 2 : 0;
  return shape;
}

// A row of a sequence, as it is decoded.
struct Turn {
  uint32_t sequence, position;
};
std::vector<Turn> in_order(uint32_t count) {
  std::vector<Turn> turns;
  for (uint32_t position = 0; position < count; ++position) turns.push_back({0, position});
  return turns;
}

struct Comparison {
  double error;  // relative, of all logits
  MegakernelProgram program;
};

Comparison compare(const std::shared_ptr<const model::Model>& model, const MegakernelDecoder::Chip& chip,
                   const std::vector<Turn>& turns, uint64_t seed = 1) {
  exec::ExecutorOptions options;
  options.context = kContext;
  options.sequences = 2;
  options.chunk = options.outputs = 1;
  const auto reference = exec::make_reference_executor(model, options);
  MegakernelDecoder decoder(model, kContext, 2, chip);
  const auto tokens = test::random_tokens(model->config().V, turns.size(), 5);
  test::Logits expected, logits;
  for (size_t i = 0; i < turns.size(); ++i) {
    const exec::Row row{tokens[i], turns[i].position, turns[i].sequence, true};
    reference->forward({&row, 1});
    expected.push_back(test::copy_outputs(*reference).front());
    logits.push_back(decoder.step(tokens[i], turns[i].position, turns[i].sequence, seed + i));
  }
  EXPECT_FALSE(decoder.found_non_finite());
  return {test::relative_error(logits, expected), decoder.program()};
}

Comparison compare(const TinyShape& shape, Format format, const MegakernelDecoder::Chip& chip,
                   const std::vector<Turn>& turns) {
  return compare(test::load_draft(test::tiny_draft(shape, format)), chip, turns);
}

// Activations are rounded to 15 bits, which can flip the choice of an expert.
double tolerance(const TinyShape& shape) { return shape.experts > 0 ? 0.05 : 0.004; }

uint32_t products_with(const MegakernelProgram& program,
                       const std::function<bool(const MegakernelProduct&)>& property) {
  return static_cast<uint32_t>(std::count_if(
      program.stages.begin(), program.stages.end(),
      [&](const MegakernelStage& s) { return s.kind == MegakernelKind::kProduct && property(s.product); }));
}

// --- the family in every format --------------------------------------------------------------------------------------
class EmulatedToken : public testing::TestWithParam<std::tuple<TinyKind, Format>> {};

TEST_P(EmulatedToken, IsCloseToTheReference) {
  const auto [kind, format] = GetParam();
  const TinyShape shape = shape_for(kind);
  EXPECT_LT(compare(shape, format, {.blocks = 5}, in_order(2)).error, tolerance(shape));
}

std::string name_of(const testing::TestParamInfo<std::tuple<TinyKind, Format>>& info) {
  return std::string(test::tiny_name(std::get<0>(info.param)).substr(0, 3)) + "_" +
         std::string(quant::info(std::get<1>(info.param)).name);
}
INSTANTIATE_TEST_SUITE_P(Family, EmulatedToken,
                         testing::Combine(testing::Values(TinyKind::kE2B, TinyKind::kE4B, TinyKind::k12B,
                                                          TinyKind::k26B, TinyKind::k31B),
                                          testing::Values(Format::kQ8_0, Format::kQ4_0, Format::kQ4_K)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OtherFormats, EmulatedToken,
                         testing::Combine(testing::Values(TinyKind::kE4B),
                                          testing::Values(Format::kQ5_K, Format::kQ6_K, Format::kF16, Format::kBF16,
                                                          Format::kF32)),
                         name_of);

// --- caches ----------------------------------------------------------------------------------------------------------
// Windows that move on, their slots used again, and one to three tiles of keys for a block, the last of them ending
// anywhere: through the ring where there are two, which is so for every position from 64 on.
TEST(EmulatedTokenCaches, WindowsMoveAndTilesFill) {
  const TinyShape shape = shape_for(TinyKind::k12B);
  EXPECT_LT(compare(shape, Format::kQ8_0, {.blocks = 2}, in_order(132)).error, tolerance(shape));
}

// After a prompt of `length` tokens: however many blocks share the work, the logits are the same but for rounding.
void expect_same_with(const TinyShape& shape, const std::vector<uint32_t>& blocks, uint32_t length) {
  const auto model = test::load_draft(test::tiny_draft(shape, Format::kQ8_0));
  test::Logits expected;
  for (const uint32_t count : blocks) {
    MegakernelDecoder decoder(model, 2048, 1, {.blocks = count});
    decoder.fill_caches(length, 3);
    test::Logits logits;
    for (uint32_t i = 0; i < 2; ++i) logits.push_back(decoder.step(static_cast<int32_t>(40 + i), length + i, 0, i));
    EXPECT_FALSE(decoder.found_non_finite());
    if (expected.empty()) expected = logits;
    EXPECT_LT(test::relative_error(logits, expected), tolerance(shape)) << count << " blocks";
  }
}

// A block for a KV head, two, and three, whose shares are put together, where the second tile begins.
TEST(EmulatedTokenCaches, SharesArePutTogether) { expect_same_with(shape_for(TinyKind::kE4B), {2, 4, 7}, 63); }

// Shares of several tiles, which come through the ring while other blocks have theirs.
TEST(EmulatedTokenCaches, LongCaches) { expect_same_with(shape_for(TinyKind::kE2B), {1, 5, 12}, 1500); }

// Keys and values that another layer has written, by both kinds of attention: a tile for each of two blocks, and two
// tiles through the ring of one.
TEST(EmulatedTokenCaches, SharedCachesThroughTheRing) { expect_same_with(shape_for(TinyKind::kE2B), {2, 1}, 100); }

// Two rows of eight heads for the tensor cores, by both kinds of attention.
TEST(EmulatedTokenCaches, SixteenHeadsOfAKvHead) {
  TinyShape shape = shape_for(TinyKind::k12B);
  shape.H = 16, shape.Hkv_sliding = shape.Hkv_global = 1;
  EXPECT_LT(compare(shape, Format::kQ8_0, {.blocks = 2}, in_order(3)).error, tolerance(shape));
  expect_same_with(shape, {2, 1}, 100);
}

TEST(EmulatedTokenCaches, SequencesTakeTurns) {
  const TinyShape shape = shape_for(TinyKind::kE4B);
  std::vector<Turn> turns;
  for (uint32_t i = 0; i < 8; ++i) {
    turns.push_back({0, i});
    if (i % 2 == 0) turns.push_back({1, i / 2});
  }
  EXPECT_LT(compare(shape, Format::kQ4_0, {.blocks = 3}, turns).error, tolerance(shape));
}

// --- ways through a product ------------------------------------------------------------------------------------------
TEST(EmulatedTokenProducts, PerLayerProductsInRegisters) {
  TinyShape shape = shape_for(TinyKind::kE4B);
  shape.P = 32;
  for (const Format format : {Format::kQ8_0, Format::kQ4_0}) {
    const Comparison run = compare(shape, format, {.blocks = 16}, in_order(2));
    EXPECT_LT(run.error, tolerance(shape));
    EXPECT_EQ(products_with(run.program, [](const MegakernelProduct& p) { return p.way == MegakernelWay::kGate; }),
              shape.L);
    EXPECT_EQ(products_with(run.program, [](const MegakernelProduct& p) { return p.way == MegakernelWay::kProject; }),
              shape.L);
  }
}

// Results of GEGLU that travel as eights, and rows that are cut.
TEST(EmulatedTokenProducts, LongRows) {
  TinyShape shape = shape_for(TinyKind::k12B);
  shape.F = shape.F_shared = 8448;  // 33 steps, of which the last cut has fewer
  for (const Format format : {Format::kQ8_0, Format::kQ4_0, Format::kQ6_K}) {
    SCOPED_TRACE(quant::info(format).name);
    const Comparison run = compare(shape, format, {.blocks = 7, .shared_memory = 150 * 1024}, in_order(2));
    EXPECT_LT(run.error, tolerance(shape));
    EXPECT_GT(products_with(run.program,
                            [](const MegakernelProduct& p) { return p.output == MegakernelOutput::kGegluEights; }),
              0u);
    EXPECT_GT(products_with(run.program, [](const MegakernelProduct& p) { return p.task.cuts > 1; }), 0u);
  }
}

// More cuts of rows than wait for their sums at once, in a ring whose slots all belong to a warp each: half of the
// warps multiply, or one of them could be five turns ahead of another.
TEST(EmulatedTokenProducts, WarpsThatFallBehind) {
  TinyShape shape = shape_for(TinyKind::k12B);
  shape.F = shape.F_shared = 8448;
  const auto model = test::load_draft(test::tiny_draft(shape, Format::kQ8_0));
  for (const uint64_t seed : {2u, 4u, 5u}) {
    const Comparison run = compare(model, {.blocks = 2, .shared_memory = 184 * 1024}, in_order(1), seed);
    EXPECT_LT(run.error, tolerance(shape)) << seed;
    EXPECT_EQ(run.program.memory.slots, kMegakernelWarps);
    EXPECT_EQ(run.program.memory.warps, kMegakernelWarps / 2);
    EXPECT_GT(products_with(
                  run.program,
                  [](const MegakernelProduct& p) { return p.tasks * p.task.cuts > 2 * 2 * kMegakernelPendingUnits; }),
              0u);
  }
}

// A residual stream of two pieces for a thread.
TEST(EmulatedTokenProducts, WideStream) {
  TinyShape shape = shape_for(TinyKind::k31B);
  shape.d = 4352;
  shape.F = shape.F_shared = 256;
  const Comparison run = compare(shape, Format::kQ4_0, {.blocks = 4}, in_order(2));
  EXPECT_LT(run.error, tolerance(shape));
  EXPECT_TRUE(run.program.needs.wide);
}

// --- chips and orders ------------------------------------------------------------------------------------------------
// From a single block to more than there are heads; rings of many slots and of few.
TEST(EmulatedTokenChips, AnyNumberOfBlocks) {
  const TinyShape shape = shape_for(TinyKind::kE2B);
  for (const uint32_t blocks : {1u, 3u, 13u}) {
    SCOPED_TRACE(blocks);
    EXPECT_LT(compare(shape, Format::kQ8_0, {.blocks = blocks}, in_order(2)).error, tolerance(shape));
  }
}
TEST(EmulatedTokenChips, AnySizeOfSharedMemory) {
  const TinyShape shape = shape_for(TinyKind::k26B);
  for (const uint32_t kilobytes : {99u, 131u, 163u}) {
    SCOPED_TRACE(kilobytes);
    EXPECT_LT(compare(shape, Format::kQ4_0, {.blocks = 9, .shared_memory = kilobytes * 1024}, in_order(2)).error,
              tolerance(shape));
  }
}

// Whatever runs first: the same bits.
TEST(EmulatedTokenChips, OrderDoesNotMatter) {
  for (const TinyKind kind : {TinyKind::kE4B, TinyKind::k26B}) {
    const auto model = test::load_draft(test::tiny_draft(shape_for(kind), Format::kQ4_0));
    std::vector<float> first;
    for (uint64_t seed = 1; seed < 6; ++seed) {
      MegakernelDecoder decoder(model, kContext, 1, {.blocks = 6});
      decoder.step(7, 0, 0, seed);
      const std::vector<float> logits = decoder.step(11, 1, 0, 100 + seed);
      if (first.empty()) first = logits;
      ASSERT_EQ(logits, first) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace carat::cuda
