#include "exec/cuda/kernels/megakernel/build.h"

#include <gtest/gtest.h>

#include <iterator>

namespace carat::cuda {
namespace {

MegakernelBuild chosen(const MegakernelBuild& needs) { return kMegakernelBuilds[megakernel_build(needs)]; }

bool same(const MegakernelBuild& a, const MegakernelBuild& b) { return a.covers(b) && b.covers(a); }

// A model of one base format whose tables and other matrices are of more.
MegakernelBuild model(Packing base, std::initializer_list<Packing> more = {}) {
  return {.packings = packing_set({base}) | packing_set(more), .per_layer = packing_set({base}), .narrow = true};
}

TEST(MegakernelBuildTest, FilesAsTheyAreShippedHaveBuildsOfTheirOwn) {
  EXPECT_TRUE(same(chosen(model(Packing::kQ8)), kMegakernelQ8));
  EXPECT_TRUE(same(chosen(model(Packing::kQ8, {Packing::kBF16})), kMegakernelQ8));
  EXPECT_TRUE(same(chosen(model(Packing::kQ4)), kMegakernelQ4));
  EXPECT_TRUE(same(chosen(model(Packing::kQ4, {Packing::kQ6K, Packing::kBF16})), kMegakernelQ4));
  EXPECT_TRUE(same(chosen(model(Packing::kQ4K, {Packing::kQ6K, Packing::kBF16})), kMegakernelQ4K));
  MegakernelBuild dense = model(Packing::kQ4, {Packing::kQ6K});
  dense.per_layer = 0;
  EXPECT_TRUE(same(chosen(dense), kMegakernelQ4));
  dense.experts = true;
  EXPECT_TRUE(same(chosen(dense), kMegakernelQ4Experts));
}

TEST(MegakernelBuildTest, AnythingElseTakesTheOneThatCanDoEverything) {
  EXPECT_TRUE(same(chosen(model(Packing::kQ8, {Packing::kQ4})), kMegakernelAny));
  EXPECT_TRUE(same(chosen(model(Packing::kQ5K)), kMegakernelAny));
  MegakernelBuild mixed = model(Packing::kQ8);
  mixed.per_layer = packing_set({Packing::kBF16});
  EXPECT_TRUE(same(chosen(mixed), kMegakernelAny));
  MegakernelBuild experts = model(Packing::kQ8);
  experts.experts = true;
  EXPECT_TRUE(same(chosen(experts), kMegakernelAny));
  EXPECT_TRUE(same(chosen({.packings = packing_set({Packing::kQ8}), .wide = true}), kMegakernelAny));
}

// Whatever a model may need, what is chosen has it.
TEST(MegakernelBuildTest, EveryNeedIsCovered) {
  for (PackingSet packings = 1; packings <= kAllPackings; ++packings) {
    for (uint32_t kind = 0; kind < 8; ++kind) {
      const bool wide = kind % 2 != 0;
      const MegakernelBuild needs{.packings = packings,
                                  .per_layer = kind & 2 ? packings : 0,
                                  .narrow = !wide,
                                  .wide = wide,
                                  .experts = (kind & 4) != 0};
      const size_t index = megakernel_build(needs);
      ASSERT_LT(index, std::size(kMegakernelBuilds));
      const MegakernelBuild& build = kMegakernelBuilds[index];
      EXPECT_EQ(needs.packings & ~build.packings, 0u);
      EXPECT_EQ(needs.per_layer & ~build.per_layer, 0u);
      EXPECT_TRUE(wide ? build.wide : build.narrow);
      EXPECT_TRUE(build.experts || !needs.experts);
    }
  }
}

// Of a packing that a set contains, the set makes no difference.
template <PackingSet kPackings>
void expect_bytes() {
  for (uint32_t i = 0; i < 8; ++i) {
    const auto packing = static_cast<Packing>(i);
    if (!contains(kPackings, packing)) continue;
    const PackedBytes found = packed_bytes_in<kPackings>(packing), wanted = packed_bytes(packing);
    EXPECT_EQ(found.quants, wanted.quants) << i;
    EXPECT_EQ(found.high, wanted.high) << i;
    EXPECT_EQ(found.scales, wanted.scales) << i;
    EXPECT_EQ(found.super, wanted.super) << i;
  }
}
TEST(MegakernelBuildTest, BytesOfAPackingInASet) {
  expect_bytes<kMegakernelQ8.packings>();
  expect_bytes<kMegakernelQ4.packings>();
  expect_bytes<kMegakernelQ4K.packings>();
  expect_bytes<kMegakernelQ4Experts.packings>();
  expect_bytes<packing_set({Packing::kQ6K})>();
  expect_bytes<kAllPackings>();
}

}  // namespace
}  // namespace carat::cuda
