#include "exec/cuda/kernels/token_shape.h"

#include <gtest/gtest.h>

#include <vector>

namespace carat::cuda {
namespace {

constexpr uint32_t kH200Shared = 232448, kBlocks = 132;

// The products of a layer of E4B and its LM head.
std::vector<TokenWeights> e4b(Packing packing) {
  return {{packing, 768, 1, 10, 10}, {packing, 640, 1, 8, 8}, {packing, 5120, 8, 10, 10}, {packing, 640, 1, 40, 40},
          {packing, 64, 1, 10, 10},  {packing, 640, 1, 1, 1}, {packing, 65536, 1, 10, 10}};
}

// Weights of 31B: long rows.
std::vector<TokenWeights> dense_31b(Packing packing) {
  return {
      {packing, 4096, 1, 21, 21}, {packing, 1344, 1, 32, 32}, {packing, 10752, 8, 21, 21}, {packing, 1344, 1, 84, 84}};
}

// What a slot holds: planes, and for Q6_K the lines of factors of each run.
uint32_t held_bytes(const TokenWeights& weights, const TokenChunks& chunks) {
  const PackedBytes bytes = packed_bytes(weights.packing);
  const uint32_t rows = chunks.groups * kTokenRows, planes = bytes.quants + bytes.high + bytes.scales;
  const bool experts = weights.piece_steps != weights.steps;
  const uint32_t runs = experts ? chunks.cut_steps / weights.piece_steps : kTokenRuns;
  const uint32_t run_steps = experts           ? rows * weights.piece_steps
                             : chunks.cuts > 1 ? chunks.cut_steps
                                               : rows * weights.steps;
  return rows * chunks.cut_steps * planes + (bytes.super != 0 ? runs * token_super_bytes(run_steps) : 0);
}

TEST(TokenShape, ChunksCoverEveryStepOnceAndFitTheirSlot) {
  for (const Packing packing : {Packing::kQ8, Packing::kQ4, Packing::kQ4K, Packing::kQ5K, Packing::kQ6K, Packing::kF16,
                                Packing::kBF16, Packing::kF32}) {
    for (const uint32_t slot : {16u * 1024, 21760u, 24u * 1024}) {
      for (const uint32_t groups : {1u, 5u, 64u, 640u, 5120u, 65536u}) {
        for (const uint32_t steps : {1u, 2u, 3u, 11u, 40u, 84u}) {
          const TokenWeights weights{packing, groups, 1, steps, steps};
          const TokenChunks chunks = token_chunks(weights, slot, kBlocks);
          SCOPED_TRACE(testing::Message()
                       << int(packing) << " slot " << slot << " groups " << groups << " steps " << steps);
          ASSERT_GE(chunks.groups, 1u);
          EXPECT_LE(held_bytes(weights, chunks), slot);
          EXPECT_GE(chunks.cuts * chunks.cut_steps, steps);
          EXPECT_LT((chunks.cuts - 1) * chunks.cut_steps, steps) << "the last cut is empty";
          EXPECT_GE(chunks.slices * chunks.slice_steps, chunks.cut_steps);
          EXPECT_LT((chunks.slices - 1) * chunks.slice_steps, chunks.cut_steps) << "the last slice is empty";
          EXPECT_EQ(chunks.slice_steps % token_lane_steps(packing), 0u);
          EXPECT_TRUE(chunks.cuts == 1 || chunks.groups == 1);
        }
      }
    }
  }
}

TEST(TokenShape, ExpertsRowsAreCutAtWholeExperts) {
  const TokenWeights down{Packing::kQ6K, 704, 1, 8 * 3, 3};
  for (const uint32_t slot : {8u * 1024, 16u * 1024}) {
    const TokenChunks chunks = token_chunks(down, slot, kBlocks);
    EXPECT_EQ(chunks.cut_steps % 3, 0u);
    EXPECT_LE(held_bytes(down, chunks), slot);
  }
}

TEST(TokenShape, HandsOfRowGroupsStayTogether) {
  EXPECT_EQ(token_share({Packing::kQ8, 5120, 8, 10, 10}, kBlocks), 40u);
  EXPECT_EQ(token_share({Packing::kQ8, 640, 1, 40, 40}, kBlocks), 5u);
}

TEST(TokenShape, WarpsShareRowGroupsWhereThereAreFew) {
  // 2560 rows of 10240 columns: five row groups a block would leave 11 of 16 warps without work.
  const TokenChunks down = token_chunks({Packing::kQ8, 640, 1, 40, 40}, 21760, kBlocks);
  EXPECT_GE(5 * down.cuts * down.slices, 16u);
  // The LM head has enough row groups for everyone, and its partial sums must not take the ring's memory.
  EXPECT_EQ(token_chunks({Packing::kQ8, 65536, 1, 10, 10}, 21760, kBlocks).slices, 1u);
}

TEST(TokenShape, TheRingSuitsTheModel) {
  for (const Packing packing : {Packing::kQ8, Packing::kQ4, Packing::kQ6K}) {
    for (const auto& products : {e4b(packing), dense_31b(packing)}) {
      const uint32_t d = products.front().steps * kStep;
      const TokenMemory memory = token_memory(products, d, kBlocks, kH200Shared);
      ASSERT_GT(memory.slots, 0u);
      EXPECT_LE(memory.total(d), kH200Shared);
      EXPECT_GE(memory.slots * memory.slot_bytes, 96u * 1024) << "too few bytes in flight to keep the memory busy";
    }
  }
}

TEST(TokenShape, TooLittleSharedMemoryIsSaid) {
  EXPECT_EQ(token_memory(dense_31b(Packing::kQ4), 5376, kBlocks, 99 * 1024).slots, 0u);
  EXPECT_EQ(token_memory(e4b(Packing::kQ8), 2560, kBlocks, 32 * 1024).slots, 0u);
}

TEST(TokenShape, FactorsOfAPieceFitTheirLinesWhereverItBegins) {
  for (uint32_t steps = 1; steps < 50; ++steps) {
    for (uint32_t first = 0; first < 8; ++first) {
      const uint32_t begin = 2 * first / 16 * 16, end = (2 * (first + steps) + 15) / 16 * 16;
      EXPECT_LE(end - begin, token_super_bytes(steps));
    }
  }
}

TEST(TokenShape, SlotsTakeWholeRowsOfTheCache) {
  for (uint32_t slot = 10 * 1024; slot <= 24 * 1024; slot += 256) {
    const uint32_t rows = 1u << token_cache_shift(slot);
    EXPECT_TRUE(rows == 8 || rows == 16) << slot;
    EXPECT_LE(rows * token_cache_row(kTokenDeepDims), slot);
  }
}

TEST(TokenShape, SplitsUseEveryBlockOnce) {
  EXPECT_EQ(token_splits(1, kBlocks), 132u);
  EXPECT_EQ(token_splits(16, kBlocks), 8u);
  EXPECT_EQ(token_splits(200, kBlocks), 1u);
}

}  // namespace
}  // namespace carat::cuda
