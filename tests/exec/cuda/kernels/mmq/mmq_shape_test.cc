#include "exec/cuda/kernels/mmq/mmq_shape.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "exec/cuda/kernels/attention/attention_shape.h"

namespace carat::cuda {
namespace {

constexpr Packing kQuantised[] = {Packing::kQ8, Packing::kQ4, Packing::kQ4K, Packing::kQ5K, Packing::kQ6K};
constexpr MmqActivations kBoth[] = {MmqActivations::kInt8, MmqActivations::kInt16};

TEST(MmqShape, FloatPackingsHaveNoKernels) {
  for (const Packing packing : kQuantised) EXPECT_TRUE(mmq_supports(packing));
  for (const Packing packing : {Packing::kF16, Packing::kBF16, Packing::kF32}) EXPECT_FALSE(mmq_supports(packing));
}

TEST(MmqShape, EveryTileFitsASmallCardTwiceBuffered) {
  for (const Packing packing : kQuantised) {
    for (const MmqActivations activations : kBoth) {
      for (const uint32_t rows : kMmqTileRows) {
        const MmqMemory memory = mmq_memory(packing, activations, rows);
        if (memory.slots == 0) {
          EXPECT_GT(2 * memory.slot + memory.scales, kSmallSharedMemory);
          EXPECT_EQ(rows, kMmqTallest);  // only the tallest may be missing
          continue;
        }
        EXPECT_GE(memory.slots, 2u);
        EXPECT_LE(memory.total(), kSmallSharedMemory);
        EXPECT_EQ(memory.slot % 128, 0u);  // the swizzle of a slot starts at bank 0
      }
      EXPECT_EQ(mmq_memory(packing, MmqActivations::kInt8, kMmqTallest).slots > 0, true);
    }
  }
}

TEST(MmqShape, FewRowsTakeTheLowestTile) {
  for (const Packing packing : kQuantised) {
    for (const MmqActivations activations : kBoth) {
      for (const uint32_t rows : {1u, 9u, 32u}) EXPECT_EQ(mmq_tile_rows(packing, activations, rows, 20, 60), 32u);
    }
  }
}

TEST(MmqShape, ManyRowsTakeTheTallestTileThereIs) {
  for (const Packing packing : kQuantised) {
    for (const MmqActivations activations : kBoth) {
      const bool tallest = mmq_memory(packing, activations, 128).slots > 0;
      EXPECT_EQ(mmq_tile_rows(packing, activations, 4096, 160, 60), tallest ? 128u : 64u);
    }
  }
}

// 512 rows by 20 column tiles on 60 SMs: 80 tall tiles are two rounds of which the second is a third full; 160 of half
// the height are three rounds, less than two tall ones.
TEST(MmqShape, RoundsThatAreNotFullCount) {
  EXPECT_EQ(mmq_tile_rows(Packing::kQ4, MmqActivations::kInt8, 512, 20, 60), 64u);
  EXPECT_EQ(mmq_tile_rows(Packing::kQ4, MmqActivations::kInt8, 512, 20, 80), 128u);
}

// The choice never takes more rounds times height than any other tile would.
TEST(MmqShape, NeverMoreRowsInSequenceThanOneTallerTile) {
  for (const uint32_t sm_count : {28u, 60u, 82u, 108u, 132u}) {
    for (const uint32_t rows : {1u, 64u, 200u, 512u, 1000u, 2048u, 8192u}) {
      for (const uint32_t tiles : {1u, 4u, 20u, 24u, 160u, 336u}) {
        const uint32_t chosen = mmq_tile_rows(Packing::kQ8, MmqActivations::kInt8, rows, tiles, sm_count);
        const auto in_sequence = [&](uint32_t height) {
          const uint64_t blocks = uint64_t{(rows + height - 1) / height} * tiles;
          return (blocks + sm_count - 1) / sm_count * height;
        };
        // A taller tile wins only by its overhead, which is less than a tile of 32 rows a round.
        EXPECT_LE(in_sequence(chosen), 2 * in_sequence(32));
        EXPECT_LE(in_sequence(chosen), in_sequence(128) + 24 * (in_sequence(128) / 128));
      }
    }
  }
}

TEST(MmqShape, WhatCannotBeIsRefused) {
  EXPECT_THROW(mmq_tile_rows(Packing::kF16, MmqActivations::kInt8, 1, 1, 1), std::logic_error);
  EXPECT_THROW(mmq_tile_rows(Packing::kQ8, MmqActivations::kInt8, 0, 1, 1), std::logic_error);
  EXPECT_THROW(mmq_tile_rows(Packing::kQ8, MmqActivations::kInt8, 1, 0, 1), std::logic_error);
  EXPECT_THROW(mmq_tile_rows(Packing::kQ8, MmqActivations::kInt8, 1, 1, 0), std::logic_error);
}

TEST(MmqShape, SizesOfActivationMemory) {
  EXPECT_EQ(mmq_chunks(1), 1u);
  EXPECT_EQ(mmq_chunks(128), 1u);
  EXPECT_EQ(mmq_chunks(2560), 20u);
  EXPECT_EQ(mmq_padded_rows(1), 128u);
  EXPECT_EQ(mmq_padded_rows(129), 256u);
}

}  // namespace
}  // namespace carat::cuda
