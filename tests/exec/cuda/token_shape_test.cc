#include "exec/cuda/kernels/token_shape.h"

#include <gtest/gtest.h>

namespace carat::cuda {
namespace {

constexpr uint32_t kHalfWarps = kTokenThreads / 16;
constexpr uint32_t kH200Shared = 232448;

uint32_t rounds(uint32_t groups, uint32_t slices, uint32_t blocks) {
  const uint32_t of_block = (groups + blocks - 1) / blocks;
  return (of_block * slices + kHalfWarps - 1) / kHalfWarps;
}

TEST(TokenShape, SlicesKeepHalfWarpsBusy) {
  // 2560 rows of 10240 columns: five row groups a block would leave 27 of 32 half-warps without work.
  const uint32_t slices = token_slices(640, 40, 132);
  EXPECT_GE(5 * slices, 20u);
  EXPECT_EQ(rounds(640, slices, 132), 1u);
  // The LM head has enough row groups for everyone.
  EXPECT_EQ(token_slices(65536, 10, 132), 1u);
}

TEST(TokenShape, SlicesNeverExceedTheSegments) {
  for (const uint32_t groups : {1u, 5u, 64u, 640u, 5120u}) {
    for (const uint32_t steps : {1u, 2u, 3u, 11u, 84u}) {
      const uint32_t slices = token_slices(groups, steps, 132);
      EXPECT_GE(slices, 1u);
      EXPECT_LE(slices, (steps + 1) / 2) << groups << " groups, " << steps << " steps";
    }
  }
}

TEST(TokenShape, DepthShrinksWithTheModelAndEndsAtZero) {
  uint32_t before = 99;
  for (const uint32_t region : {20000u, 40000u, 60000u, 90000u, 150000u}) {
    const uint32_t depth = token_ring_depth(region, 2560, kH200Shared);
    EXPECT_LE(depth, before);
    before = depth;
  }
  EXPECT_EQ(before, 0u);
  EXPECT_EQ(token_ring_depth(30000, 2560, 99 * 1024), 0u) << "consumer cards have too little shared memory";
  for (const uint32_t region : {20000u, 50000u}) {
    const uint32_t depth = token_ring_depth(region, 5376, kH200Shared);
    ASSERT_GT(depth, 0u);
    EXPECT_LE(token_shared_bytes(depth, region, 5376), kH200Shared);
  }
}

TEST(TokenShape, RegionsHoldActivationsAndPartialSums) {
  // 640 bytes a step of quantised activations, 16 bytes a task.
  EXPECT_EQ(token_product_bytes(Packing::kQ8, 40, 640, 5, 132), 40 * 640 + 5 * 5 * 16u);
  EXPECT_EQ(token_product_bytes(Packing::kBF16, 10, 2688, 1, 132), 10 * 1024 + 21 * 16u);
}

TEST(TokenShape, SplitsUseEveryBlockOnce) {
  EXPECT_EQ(token_splits(1, 132), 132u);
  EXPECT_EQ(token_splits(16, 132), 8u);
  EXPECT_EQ(token_splits(200, 132), 1u);
}

}  // namespace
}  // namespace carat::cuda
