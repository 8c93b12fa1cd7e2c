#include "model/kv_geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace carat::model {
namespace {

// Layers S S G | S G with the last two sharing; W = 8.
Config small_config() {
  Config config;
  config.L = 5;
  config.W = 8;
  config.n_kv = 3;
  for (uint32_t i = 0; i < config.L; ++i) {
    Layer layer;
    layer.index = i;
    layer.sliding = i != 2 && i != 4;
    layer.H = 4;
    layer.Hkv = layer.sliding ? 2 : 1;
    layer.hd = layer.sliding ? 16 : 32;
    layer.owns_kv = i < config.n_kv;
    layer.kv_source = layer.owns_kv ? i : layer.sliding ? 1 : 2;
    config.layers.push_back(layer);
  }
  return config;
}

TEST(KvGeometry, GroupsOwnersByShape) {
  const KvGeometry geometry(small_config(), 100, 4);
  ASSERT_EQ(geometry.groups().size(), 2u);
  EXPECT_TRUE(geometry.groups()[0].sliding);
  EXPECT_EQ(geometry.groups()[0].cells, 7u + 4u);
  EXPECT_THAT(geometry.groups()[0].layers, testing::ElementsAre(0, 1));
  EXPECT_EQ(geometry.groups()[0].values_per_cell(), 64u);
  EXPECT_FALSE(geometry.groups()[1].sliding);
  EXPECT_EQ(geometry.groups()[1].cells, 100u);
  EXPECT_THAT(geometry.groups()[1].layers, testing::ElementsAre(2));
  EXPECT_EQ(geometry.cells(3), 0u);
  EXPECT_EQ(geometry.cells(4), 0u);
}

TEST(KvGeometry, PositionsWrapInSlidingLayersOnly) {
  const KvGeometry geometry(small_config(), 100, 4);
  EXPECT_EQ(geometry.cell(0, 10), 10u);
  EXPECT_EQ(geometry.cell(0, 11), 0u);
  EXPECT_EQ(geometry.cell(2, 99), 99u);
}

TEST(KvGeometry, CountsBytes) {
  const KvGeometry geometry(small_config(), 100, 4);
  const uint64_t values = 2 * 11 * 64 + 100 * 64;  // two sliding layers, one global
  EXPECT_EQ(geometry.bytes(2.0), 2 * values);
  EXPECT_EQ(geometry.bytes(1.0625), values + values / 16);
}

TEST(KvGeometry, AShortContextNeedsNoRing) {
  const KvGeometry geometry(small_config(), 6, 4);
  EXPECT_EQ(geometry.cells(0), 6u);
  for (uint32_t written = 0; written <= 6; ++written) {
    for (uint32_t n = 0; n <= written; ++n) EXPECT_TRUE(geometry.can_resume(n, written)) << n << " of " << written;
  }
}

TEST(KvGeometry, AHugeWindowOrChunkDoesNotOverflow) {
  Config config = small_config();
  config.W = kMaxPositions;
  EXPECT_EQ(KvGeometry(config, 1000, 0xffffffff).cells(0), 1000u);
}

TEST(KvGeometry, CanResumeAtTheEdges) {
  const KvGeometry geometry(small_config(), 1000, 4);  // ring of 11, window needs 7 positions before n
  EXPECT_FALSE(geometry.can_resume(21, 20));
  EXPECT_TRUE(geometry.can_resume(20, 20));
  EXPECT_TRUE(geometry.can_resume(16, 20));   // needs 9..15; 8 is the last that was overwritten
  EXPECT_FALSE(geometry.can_resume(15, 20));  // needs 8..14
  EXPECT_FALSE(geometry.can_resume(1, 20));
  EXPECT_TRUE(geometry.can_resume(0, 20));   // needs nothing
  EXPECT_TRUE(geometry.can_resume(1, 11));   // nothing overwritten yet
  EXPECT_FALSE(geometry.can_resume(1, 12));  // position 0 is gone
}

TEST(KvGeometry, AWindowOfOneNeedsNoHistory) {
  Config config = small_config();
  config.W = 1;
  const KvGeometry geometry(config, 1000, 4);
  EXPECT_EQ(geometry.cells(0), 4u);
  for (uint32_t n = 0; n <= 50; ++n) EXPECT_TRUE(geometry.can_resume(n, 50)) << n;
}

// can_resume against a simulated ring that remembers which position each cell holds.
TEST(KvGeometry, CanResumeAgreesWithASimulatedRing) {
  for (uint32_t chunk = 1; chunk <= 5; ++chunk) {
    const Config config = small_config();
    const KvGeometry geometry(config, 64, chunk);
    std::vector<uint32_t> ring(geometry.cells(0), 0xffffffff);
    for (uint32_t written = 0; written <= 64; ++written) {
      for (uint32_t n = 0; n <= written; ++n) {
        bool kept = true;
        for (uint32_t p = n >= config.W ? n - config.W + 1 : 0; p < n; ++p) kept &= ring[geometry.cell(0, p)] == p;
        EXPECT_EQ(geometry.can_resume(n, written), kept) << n << " of " << written << ", chunk " << chunk;
      }
      if (written < 64) ring[geometry.cell(0, written)] = written;
    }
  }
}

// Every number of cells from what the definition says: the ring begins to matter where the context is longer than
// W - 1 + chunk, and whole tiles are rounded up from either.
TEST(KvGeometry, CountsCellsAtEveryBoundary) {
  const Config config = small_config();
  for (const uint32_t tile : {1u, 4u, 64u}) {
    for (const uint32_t chunk : {1u, 2u, 57u, 58u, 64u, 121u, 122u}) {  // W - 1 + chunk is 64 and 128, and one more
      for (const uint32_t context : {1u, 7u, 8u, 9u, 63u, 64u, 65u, 127u, 128u, 129u, 1000u}) {
        const KvGeometry geometry(config, context, chunk, tile);
        const auto whole_tiles = [&](uint32_t positions) { return (positions + tile - 1) / tile * tile; };
        EXPECT_EQ(geometry.cells(0), whole_tiles(std::min(context, 8 - 1 + chunk))) << context << " chunk " << chunk;
        EXPECT_EQ(geometry.cells(2), whole_tiles(context)) << context << " chunk " << chunk;
      }
    }
  }
}

TEST(KvGeometry, LayersThatShareACacheHaveNoCellsWhateverTheTile) {
  for (const uint32_t tile : {1u, 64u}) {
    const KvGeometry geometry(small_config(), 100, 4, tile);
    EXPECT_EQ(geometry.cells(3), 0u);
    EXPECT_EQ(geometry.cells(4), 0u);
    EXPECT_EQ(geometry.rows(3, 10), 0u);
    EXPECT_GT(geometry.cells(1), 0u);  // whose cache layer 3 reads
    for (const KvGeometry::Group& group : geometry.groups()) {
      for (const uint32_t layer : group.layers) EXPECT_LT(layer, 3u);
    }
  }
}

// While a row at position p is computed, the chunk it may be the first of has been written: the cells of the window
// before it and of the whole chunk are all different.
TEST(KvGeometry, AChunkOverwritesNothingItsFirstRowSees) {
  for (const uint32_t tile : {1u, 4u, 64u}) {
    for (const uint32_t chunk : {1u, 3u, 4u, 60u}) {
      const Config config = small_config();
      const KvGeometry geometry(config, 300, chunk, tile);
      for (uint32_t position = 0; position + chunk <= 300; ++position) {
        std::set<uint32_t> cells;
        const uint32_t begin = position >= config.W ? position - config.W + 1 : 0, end = position + chunk;
        for (uint32_t p = begin; p < end; ++p) cells.insert(geometry.cell(0, p));
        ASSERT_EQ(cells.size(), end - begin) << "position " << position << ", chunk " << chunk << ", tile " << tile;
        ASSERT_LT(*cells.rbegin(), geometry.cells(0));
      }
    }
  }
}

TEST(KvGeometry, ARingOfOneCellFewerWouldOverwriteAVisibleKey) {
  const KvGeometry geometry(small_config(), 300, 4);
  // The first of four rows at 20 sees 13 .. 20, and 23 was written before it is computed.
  EXPECT_EQ(geometry.cells(0), 23u - 13u + 1u);
}

TEST(KvGeometry, AlignedTilesLieInConsecutiveCells) {
  for (const uint32_t context : {1u, 63u, 65u, 200u, 1000u}) {
    for (const uint32_t chunk : {1u, 57u, 58u, 100u}) {
      const KvGeometry geometry(small_config(), context, chunk, 64);
      for (const uint32_t layer : {0u, 2u}) {
        ASSERT_EQ(geometry.cells(layer) % 64, 0u);
        for (uint32_t tile = 0; tile < context; tile += 64) {
          const uint32_t first = geometry.cell(layer, tile);
          for (uint32_t i = 0; i < 64; ++i) ASSERT_EQ(geometry.cell(layer, tile + i), first + i);
        }
      }
    }
  }
}

TEST(KvGeometry, RowsOfAllPositionsAreDifferentAndFillThePlane) {
  for (const uint32_t tile : {1u, 8u}) {
    const KvGeometry geometry(small_config(), 20, 4, tile);
    constexpr uint32_t kSequences = 3;
    for (const uint32_t layer : {0u, 1u, 2u}) {
      const uint32_t Hkv = small_config().layers[layer].Hkv, cells = geometry.cells(layer);
      ASSERT_EQ(geometry.rows(layer, kSequences), uint64_t{kSequences} * Hkv * cells);
      uint64_t next = 0;  // [sequence][Hkv][cells]
      for (uint32_t sequence = 0; sequence < kSequences; ++sequence) {
        for (uint32_t head = 0; head < Hkv; ++head) {
          for (uint32_t p = 0; p < cells; ++p, ++next) {
            ASSERT_EQ(geometry.row(layer, sequence, head, p), next);
            ASSERT_EQ(geometry.row(layer, sequence, head, p + cells), next) << "one round further";
          }
        }
      }
      EXPECT_EQ(next, geometry.rows(layer, kSequences));
    }
  }
}

TEST(KvGeometry, RowsBeyond32BitsAreCounted) {
  const KvGeometry geometry(small_config(), kMaxPositions, 4);
  EXPECT_EQ(geometry.rows(2, 1u << 16), uint64_t{1} << 46);
  EXPECT_EQ(geometry.row(2, 5, 0, kMaxPositions - 1), 6 * uint64_t{kMaxPositions} - 1);
}

// The pieces of a run of positions against the cells one by one.
TEST(KvGeometry, ContiguousRunsEndWhereTheRingBeginsAnew) {
  const KvGeometry geometry(small_config(), 100, 4);  // 11 cells
  EXPECT_EQ(geometry.contiguous_end(0, 0, 11), 11u);
  EXPECT_EQ(geometry.contiguous_end(0, 5, 16), 11u);
  EXPECT_EQ(geometry.contiguous_end(0, 10, 15), 11u);
  EXPECT_EQ(geometry.contiguous_end(0, 11, 15), 15u);
  EXPECT_EQ(geometry.contiguous_end(2, 30, 100), 100u);
  for (uint32_t begin = 0; begin < 50; ++begin) {
    for (uint32_t end = begin + 1; end <= begin + 11; ++end) {
      uint32_t expected = begin + 1;
      while (expected < end && geometry.cell(0, expected) == geometry.cell(0, expected - 1) + 1) ++expected;
      EXPECT_EQ(geometry.contiguous_end(0, begin, end), expected) << begin << " to " << end;
    }
  }
}

// The tile adds cells, so more of a ring may still be there; what can be resumed must not depend on the executor, so
// the table of sequences asks a geometry without tiles.
TEST(KvGeometry, TilesOnlyAddToWhatCanBeResumed) {
  const KvGeometry exact(small_config(), 1000, 4), tiled(small_config(), 1000, 4, 64);
  for (uint32_t written = 0; written < 150; ++written) {
    for (uint32_t n = 0; n <= written; ++n) {
      EXPECT_TRUE(tiled.can_resume(n, written) || !exact.can_resume(n, written)) << n << " of " << written;
    }
  }
  EXPECT_FALSE(exact.can_resume(1, 64));
  EXPECT_TRUE(tiled.can_resume(1, 64));
  EXPECT_FALSE(tiled.can_resume(1, 65));
}

}  // namespace
}  // namespace carat::model
