#include "exec/cuda/kernels/megakernel/megakernel_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "model/writing/preset.h"

namespace carat::cuda {
namespace {

constexpr uint32_t kH200Shared = 232448, kBlocks = 132;

// The products of a layer of E4B and its LM head.
std::vector<MegakernelWeights> e4b(Packing packing) {
  return {{packing, 3072, 1, 10, 10},  {packing, 2560, 1, 8, 8},  {packing, 20480, 16, 10, 10},
          {packing, 2560, 1, 40, 40},  {packing, 256, 1, 10, 10}, {packing, 2560, 1, 1, 1},
          {packing, 262144, 1, 10, 10}};
}

// Weights of 31B: long rows.
std::vector<MegakernelWeights> dense_31b(Packing packing) {
  return {{packing, 16384, 1, 21, 21},
          {packing, 5376, 1, 32, 32},
          {packing, 43008, 16, 21, 21},
          {packing, 5376, 1, 84, 84}};
}

// What a slot holds: planes, and for Q6_K the lines of factors of each run (at worst a row is one).
uint32_t held_bytes(const MegakernelWeights& weights, const MegakernelTasks& tasks) {
  const PackedBytes bytes = packed_bytes(weights.packing);
  const bool experts = weights.piece_steps != weights.steps;
  const uint32_t runs = experts ? tasks.cut_steps / weights.piece_steps : tasks.rows;
  const uint32_t run_steps = experts ? tasks.rows * weights.piece_steps : tasks.cut_steps;
  return tasks.rows * tasks.cut_steps * (bytes.quants + bytes.high + bytes.scales) +
         (bytes.super != 0 ? runs * megakernel_super_bytes(run_steps) : 0);
}

TEST(MegakernelShape, TasksCoverEveryStepOnceAndFitTheirSlot) {
  for (const Packing packing : {Packing::kQ8, Packing::kQ4, Packing::kQ4K, Packing::kQ5K, Packing::kQ6K, Packing::kF16,
                                Packing::kBF16, Packing::kF32}) {
    for (const uint32_t slot : {8704u, 16u * 1024, 21760u}) {
      for (const uint32_t rows : {4u, 20u, 256u, 2560u, 20480u, 262144u}) {
        for (const uint32_t steps : {1u, 2u, 3u, 11u, 40u, 84u}) {
          const MegakernelWeights weights{packing, rows, 1, steps, steps};
          const MegakernelTasks tasks = megakernel_tasks(weights, slot, kBlocks);
          SCOPED_TRACE(testing::Message()
                       << int(packing) << " slot " << slot << " rows " << rows << " steps " << steps);
          ASSERT_TRUE(tasks.rows == 1 || tasks.rows == 2 || tasks.rows == 4 || tasks.rows == 8) << tasks.rows;
          EXPECT_EQ(rows % tasks.rows, 0u);
          EXPECT_LE(held_bytes(weights, tasks), slot);
          EXPECT_GE(tasks.cuts * tasks.cut_steps, steps);
          EXPECT_LT((tasks.cuts - 1) * tasks.cut_steps, steps) << "the last cut is empty";
          EXPECT_TRUE(tasks.cuts == 1 || tasks.cut_steps % megakernel_lane_steps(packing) == 0);
        }
      }
    }
  }
}

TEST(MegakernelShape, ExpertsRowsAreCutAtWholeExperts) {
  const MegakernelWeights down{Packing::kQ6K, 2816, 1, 8 * 3, 3};
  for (const uint32_t slot : {4u * 1024, 16u * 1024}) {
    const MegakernelTasks tasks = megakernel_tasks(down, slot, kBlocks);
    EXPECT_EQ(tasks.cut_steps % 3, 0u);
    EXPECT_EQ(tasks.rows, 2u) << "what the kernel is compiled for";
    EXPECT_LE(held_bytes(down, tasks), slot);
  }
}

TEST(MegakernelShape, EightsStayTogether) {
  // 1,280 eights of gates and as many of ups: ten for most blocks.
  EXPECT_EQ(megakernel_share({Packing::kQ8, 20480, 16, 10, 10}, 4, kBlocks), 40u);
  EXPECT_EQ(megakernel_share({Packing::kQ8, 20480, 16, 10, 10}, 8, kBlocks), 20u);
  EXPECT_EQ(megakernel_share({Packing::kQ8, 2560, 1, 40, 40}, 4, kBlocks), 5u);
}

TEST(MegakernelShape, GatesAndUpsShareATask) {
  for (const uint32_t slot : {3u * 1024, 8704u, 21760u}) {
    EXPECT_GE(megakernel_tasks({Packing::kQ8, 20480, 16, 10, 10}, slot, kBlocks).rows, 2u);
  }
}

TEST(MegakernelShape, FewRowsAreSharedByMoreWarps) {
  // 256 rows: two for a block, by two warps.
  EXPECT_EQ(megakernel_tasks({Packing::kQ8, 256, 1, 10, 10}, 10880, kBlocks).rows, 1u);
  // The LM head has enough for everyone; the fewer loads of activations the better.
  EXPECT_GE(megakernel_tasks({Packing::kQ8, 262144, 1, 10, 10}, 10880, kBlocks).rows, 4u);
}

// The products of the per-layer embeddings are in registers: a row of the gate is a task, four of the projection.
TEST(MegakernelShape, WholeRowsOfPerLayerProductsFitASlot) {
  for (const Packing packing :
       {Packing::kQ8, Packing::kQ4, Packing::kQ4K, Packing::kQ5K, Packing::kQ6K, Packing::kF16, Packing::kBF16}) {
    const MegakernelWeights gate{packing, 256, 1, 10, 10}, projection{packing, 2560, 1, 1, 1};
    const uint32_t slot = megakernel_memory(e4b(packing), 2560, kBlocks, kH200Shared).slot_bytes;
    EXPECT_TRUE(megakernel_fits(gate, 1, slot)) << int(packing);
    EXPECT_LE(megakernel_share(gate, 1, kBlocks), kMegakernelGateRows);
    EXPECT_TRUE(megakernel_fits(projection, kMegakernelProjectRows, slot)) << int(packing);
    EXPECT_LE(megakernel_share(projection, kMegakernelProjectRows, kBlocks),
              2 * kMegakernelWarps / kMegakernelProjectRows);
  }
  EXPECT_FALSE(megakernel_fits({Packing::kF32, 256, 1, 10, 10}, 1, 8704)) << "a row is longer than the slot";
  EXPECT_FALSE(megakernel_fits({Packing::kQ8, 2562, 1, 1, 1}, kMegakernelProjectRows, 8704)) << "rows are left over";
}

TEST(MegakernelShape, EveryBlockHasATaskWhereThereAreRowsForIt) {
  for (const uint32_t rows : {136u, 160u, 256u, 512u, 1536u}) {
    for (const uint32_t steps : {1u, 2u, 40u}) {
      EXPECT_GE(rows / megakernel_tasks({Packing::kQ8, rows, 1, steps, steps}, 10880, kBlocks).rows, kBlocks) << rows;
    }
  }
}

// What a few slots under way are for: layers in which stages wait for one another more than for the memory.
TEST(MegakernelShape, CopiesOfShortLayersAreHeldBack) {
  EXPECT_EQ(megakernel_memory(e4b(Packing::kQ8), 2560, kBlocks, kH200Shared).under_way, 8u);
  EXPECT_EQ(megakernel_memory(e4b(Packing::kQ4), 2560, kBlocks, kH200Shared).under_way, 3u);
  const MegakernelMemory floats = megakernel_memory(e4b(Packing::kBF16), 2560, kBlocks, kH200Shared);
  EXPECT_EQ(floats.under_way, 64 * 1024 / floats.slot_bytes);
  const MegakernelMemory dense = megakernel_memory(dense_31b(Packing::kQ4), 5376, kBlocks, kH200Shared);
  EXPECT_EQ(dense.under_way, 64 * 1024 / dense.slot_bytes);
  std::vector<MegakernelWeights> products = e4b(Packing::kQ8);
  products.push_back({Packing::kQ8, 2560, 1, 8 * 3, 3});  // experts' rows, put together
  EXPECT_EQ(megakernel_memory(products, 2560, kBlocks, kH200Shared).under_way, kMegakernelMaxSlots);
}

// Where two warps copy, what a block has of a short product passes through few slots: four rows together, although two
// would be multiplied sooner.
TEST(MegakernelShape, ShortProductsTakeFewSlots) {
  for (const Packing packing : {Packing::kQ8, Packing::kQ4, Packing::kQ4K}) {
    const uint32_t slot = megakernel_memory(e4b(packing), 2560, kBlocks, kH200Shared).slot_bytes;
    const uint32_t cycles = megakernel_slot_cycles(e4b(packing), kBlocks);
    const MegakernelWeights qkv = e4b(packing).front();
    EXPECT_GT(cycles, 0u);
    EXPECT_EQ(megakernel_tasks(qkv, slot, kBlocks).rows, 2u);
    EXPECT_EQ(megakernel_tasks(qkv, slot, kBlocks, cycles).rows, 4u);
  }
  EXPECT_EQ(megakernel_slot_cycles(dense_31b(Packing::kQ4), kBlocks), 0u);
  std::vector<MegakernelWeights> experts = e4b(Packing::kQ4);
  experts.push_back({Packing::kQ4, 2560, 1, 8 * 3, 3});
  EXPECT_EQ(megakernel_slot_cycles(experts, kBlocks), 0u);
}

TEST(MegakernelShape, RowsThatAreCutAreFew) {
  uint32_t most_of_q8 = 0;
  for (const Packing packing : {Packing::kQ8, Packing::kQ4, Packing::kQ4K, Packing::kQ5K, Packing::kQ6K, Packing::kF16,
                                Packing::kBF16, Packing::kF32}) {
    for (const uint32_t slot : {8704u, 10880u, 21760u}) {
      for (const uint32_t steps : {24u, 40u, 60u, 84u}) {
        const MegakernelTasks tasks = megakernel_tasks({packing, 2560, 1, steps, steps}, slot, kBlocks);
        if (tasks.cuts == 1) continue;
        if (packing == Packing::kQ8) {
          most_of_q8 = std::max(most_of_q8, tasks.rows);
        } else {
          EXPECT_LE(tasks.rows, 2u) << int(packing) << " slot " << slot << " steps " << steps;
        }
      }
    }
  }
  EXPECT_EQ(most_of_q8, 4u) << "activations are read once for four rows";
}

// Every warp that multiplies holds a slot; those that wait for one only take turns from the others.
TEST(MegakernelShape, NoMoreWarpsThanSlotsAreWorth) {
  const MegakernelMemory e4b_memory = megakernel_memory(e4b(Packing::kQ8), 2560, kBlocks, kH200Shared);
  EXPECT_EQ(e4b_memory.loaders, 2u);
  EXPECT_EQ(e4b_memory.warps, kMegakernelWarps);
  const MegakernelMemory dense = megakernel_memory(dense_31b(Packing::kQ4), 5376, kBlocks, kH200Shared);
  EXPECT_LT(dense.slots, 12u);
  EXPECT_EQ(dense.loaders, kMegakernelLoaderWarps);
  EXPECT_EQ(dense.warps, kMegakernelWarps / 2);
  std::vector<MegakernelWeights> experts = e4b(Packing::kQ8);
  experts.push_back({Packing::kQ8, 2560, 1, 8 * 3, 3});
  const MegakernelMemory hurried = megakernel_memory(experts, 2560, kBlocks, kH200Shared);
  EXPECT_EQ(hurried.warps, kMegakernelWarps);
  EXPECT_EQ(hurried.geglu_warps, kMegakernelWarps / 2);
  for (const MegakernelMemory& memory : {e4b_memory, dense}) {
    for (const uint32_t warps : {memory.warps, memory.geglu_warps}) {
      EXPECT_TRUE(std::has_single_bit(warps) && warps <= kMegakernelWarps) << "units are dealt out by masks";
    }
    EXPECT_GT(memory.under_way, kMegakernelSlotsAhead);
  }
}

TEST(MegakernelShape, TheRingSuitsTheModel) {
  for (const Packing packing : {Packing::kQ8, Packing::kQ4, Packing::kQ6K}) {
    for (const auto& products : {e4b(packing), dense_31b(packing)}) {
      const uint32_t d = products.front().steps * kStep;
      const MegakernelMemory memory = megakernel_memory(products, d, kBlocks, kH200Shared);
      ASSERT_GT(memory.slots, 0u);
      EXPECT_LE(memory.total(d), kH200Shared);
      EXPECT_TRUE(memory.loaders >= 2 && memory.loaders <= kMegakernelLoaderWarps) << memory.loaders;
      EXPECT_GE(memory.slots * memory.slot_bytes, 96u * 1024) << "too few bytes in flight to keep the memory busy";
    }
  }
}

// A warp that copies has every loaders-th slot. Where that and the turns of the warps that multiply have a common
// divisor, the ring is several that know nothing of one another.
TEST(MegakernelShape, PartsOfARingThatAreNotHeldUp) {
  for (const uint32_t warps : {8u, 16u}) {
    for (uint32_t slots = 4; slots <= kMegakernelMaxSlots; ++slots) {
      SCOPED_TRACE(testing::Message() << slots << " slots, " << warps << " warps");
      // In order: unit 0 keeps its warp from its next unit, whose slot is wanted again.
      EXPECT_GE(megakernel_lead(slots, 1, warps), slots);
      EXPECT_LT(megakernel_lead(slots, 1, warps), slots + warps);
      EXPECT_EQ(megakernel_lead(slots, 2, warps) == kMegakernelNeverHeldUp, slots % 2 == 0);
      if (slots % 3 == 0) {
        EXPECT_LT(megakernel_lead(slots, 3, warps), slots + 3 * warps);
      }
    }
  }
  EXPECT_EQ(megakernel_lead(8, 3, 8), kMegakernelNeverHeldUp) << "every warp has a slot of its own";
}

TEST(MegakernelShape, RoomForWhatWaits) {
  const MegakernelWeights gates{Packing::kQ8, 20480, 16, 10, 10}, down{Packing::kQ8, 2560, 1, 40, 40};
  EXPECT_EQ(megakernel_room(gates, {4, 1, 10}), 31u * 4);
  EXPECT_EQ(megakernel_room(gates, {8, 1, 10}), 31u * 2);
  EXPECT_EQ(megakernel_room(down, {4, 2, 20}), 62u);
  EXPECT_EQ(megakernel_room(down, {4, 5, 8}), 59u);
  EXPECT_EQ(megakernel_room(down, {1, 1, 40}), kMegakernelNeverHeldUp);
}

// All products of a model whose matrices are of one packing.
std::vector<MegakernelWeights> products_of(const model::Preset& preset, Packing packing) {
  std::vector<MegakernelWeights> products;
  const auto steps_of = [](uint32_t columns) { return (columns + kStep - 1) / kStep; };
  const auto product = [&](uint32_t rows, uint32_t steps, uint32_t run = 1, uint32_t pieces = 1) {
    products.push_back({packing, rows, run, steps * pieces, steps});
  };
  const uint32_t d_steps = steps_of(preset.d);
  for (uint32_t layer = 0; layer < preset.L; ++layer) {
    const bool sliding = preset.is_sliding(layer);
    const uint32_t hd = sliding ? preset.hd_sliding : preset.hd_global;
    const uint32_t kv_heads = preset.owns_kv(layer) ? (sliding ? preset.Hkv_sliding : preset.Hkv_global) : 0;
    const uint32_t F = preset.owns_kv(layer) ? preset.F : preset.F_shared;
    product((preset.H + 2 * kv_heads) * hd, d_steps);
    product(preset.d, steps_of(preset.H * hd));
    product(2 * F, d_steps, F > kMegakernelMostWords ? 2 * kMegakernelEight : 2);
    product(preset.d, steps_of(F));
    if (preset.P > 0) {
      product(preset.P, d_steps);
      product(preset.d, steps_of(preset.P));
    }
    if (preset.experts == 0) continue;
    product(preset.experts_used * 2 * preset.F_expert, d_steps, 2 * kMegakernelEight);
    product(preset.d, steps_of(preset.F_expert), 1, preset.experts_used);
  }
  product(preset.V, d_steps);
  return products;
}

// Models of the family on chips from a slice of one to more than there are: results that wait for others stay until
// those are there.
TEST(MegakernelShape, NoResultTakesTheRoomOfOneThatWaits) {
  for (const char* name : {"e2b", "e4b", "12b", "26b-a4b", "31b"}) {
    const model::Preset preset = model::find_preset(name);
    for (const Packing packing : {Packing::kQ8, Packing::kQ4, Packing::kQ4K, Packing::kQ6K, Packing::kBF16}) {
      const std::vector<MegakernelWeights> products = products_of(preset, packing);
      for (const uint32_t kilobytes : {99u, 163u, 227u}) {
        for (const uint32_t blocks : {16u, 24u, 36u, 46u, 60u, 78u, 114u, kBlocks, 170u}) {
          const MegakernelMemory memory = megakernel_memory(products, preset.d, blocks, kilobytes * 1024);
          if (memory.slots == 0) continue;
          SCOPED_TRACE(testing::Message()
                       << name << " " << int(packing) << " " << kilobytes << " KB, " << blocks << " SMs");
          const uint32_t lead = megakernel_lead(memory.slots, memory.loaders, memory.warps);
          const uint32_t geglu_lead = megakernel_lead(memory.slots, memory.loaders, memory.geglu_warps);
          const uint32_t cycles = megakernel_slot_cycles(products, blocks);
          for (const MegakernelWeights& weights : products) {
            const MegakernelTasks tasks = megakernel_tasks(weights, memory.slot_bytes, blocks, cycles);
            const uint32_t units = megakernel_share(weights, tasks.rows, blocks) * tasks.cuts;
            ASSERT_LE(std::min(units - 1, weights.run == 1 ? lead : geglu_lead), megakernel_room(weights, tasks));
          }
        }
      }
    }
  }
}

// On an H200 a model that would need it has all its copying warps, and half of those that multiply.
TEST(MegakernelShape, FewerWarpsMultiplyWhereTheyAreNotHeldUp) {
  const auto warps = [](const char* name, Packing packing) {
    const model::Preset preset = model::find_preset(name);
    const MegakernelMemory memory = megakernel_memory(products_of(preset, packing), preset.d, kBlocks, kH200Shared);
    EXPECT_GE(memory.loaders, 2u) << name;
    EXPECT_GE(memory.slots, 12u) << name;
    return memory.warps;
  };
  EXPECT_EQ(warps("12b", Packing::kQ8), kMegakernelWarps / 2);
  EXPECT_EQ(warps("31b", Packing::kQ8), kMegakernelWarps / 2);
  // What was measured.
  EXPECT_EQ(warps("e2b", Packing::kQ8), kMegakernelWarps);
  for (const Packing packing : {Packing::kQ8, Packing::kQ4, Packing::kQ4K}) {
    EXPECT_EQ(warps("e4b", packing), kMegakernelWarps);
  }
  EXPECT_EQ(warps("12b", Packing::kQ4), kMegakernelWarps);
  EXPECT_EQ(warps("26b-a4b", Packing::kQ4), kMegakernelWarps);
}

TEST(MegakernelShape, TooLittleSharedMemoryIsSaid) {
  EXPECT_EQ(megakernel_memory(dense_31b(Packing::kQ4), 5376, kBlocks, 99 * 1024).slots, 0u);
  EXPECT_EQ(megakernel_memory(e4b(Packing::kQ8), 2560, kBlocks, 32 * 1024).slots, 0u);
}

TEST(MegakernelShape, FactorsOfAPieceFitTheirLinesWhereverItBegins) {
  for (uint32_t steps = 1; steps < 50; ++steps) {
    for (uint32_t first = 0; first < 8; ++first) {
      const uint32_t begin = 2 * first / 16 * 16, end = (2 * (first + steps) + 15) / 16 * 16;
      EXPECT_LE(end - begin, megakernel_super_bytes(steps));
    }
  }
}

TEST(MegakernelShape, SlotsTakeWholeRowsOfTheCache) {
  for (uint32_t slot = 10 * 1024; slot <= 24 * 1024; slot += 256) {
    const uint32_t rows = 1u << megakernel_cache_shift(slot);
    EXPECT_TRUE(rows == 8 || rows == 16) << slot;
    EXPECT_LE(rows * megakernel_cache_row(kMegakernelDeepDims), slot);
  }
}

TEST(MegakernelShape, SplitsUseEveryBlockOnce) {
  EXPECT_EQ(megakernel_splits(1, kBlocks), 132u);
  EXPECT_EQ(megakernel_splits(16, kBlocks), 8u);
  EXPECT_EQ(megakernel_splits(200, kBlocks), 1u);
}

}  // namespace
}  // namespace carat::cuda
