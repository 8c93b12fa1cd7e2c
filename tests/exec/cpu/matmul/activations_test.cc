#include "exec/cpu/matmul/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "exec/cpu/kernel_tables.h"
#include "support/random.h"

namespace carat::exec::cpu {
namespace {

TEST(RowTiles, CoverEveryRowOnceInOrder) {
  for (uint32_t rows = 0; rows < 70; ++rows) {
    const RowTiles tiles = {rows, 8};
    uint32_t next = 0;
    for (uint32_t t = 0; t < tiles.count(); ++t) {
      EXPECT_EQ(tiles.tile(t).first, next);
      EXPECT_TRUE(std::has_single_bit(tiles.tile(t).width));
      EXPECT_LE(tiles.tile(t).width, 8u);
      next += tiles.tile(t).width;
    }
    EXPECT_EQ(next, rows);
  }
}

class Quantise : public testing::TestWithParam<const KernelTable*> {};

TEST_P(Quantise, KeepsValuesWithinHalfAStepAndSumsExactly) {
  test::Random random(7);
  for (const bool int16 : {false, true}) {
    for (const uint32_t rows : {1u, 3u, 13u}) {
      const uint32_t cols = 96;
      std::vector<float> values = random.normals(size_t{rows} * cols, 3.0f);
      for (uint32_t i = 0; i < 32; ++i) values[i] = 0.0f;  // a block of zeros
      ActivationBuffer buffer(*GetParam(), rows, cols);
      buffer.set_source(values.data(), cols, rows, cols, int16);
      for (uint32_t t = 0; t < buffer.tiles().count(); ++t) {
        const RowTiles::Tile tile = buffer.tiles().tile(t);
        buffer.quantise(tile);
        const QuantisedRows q = buffer.slice(tile.first, tile.width).quantised;
        for (uint32_t r = 0; r < tile.width; ++r) {
          for (uint32_t block = 0; block < cols / 32; ++block) {
            const float scale = q.scales[block * tile.width + r];
            int sums[2] = {0, 0};
            for (uint32_t i = 0; i < 32; ++i) {
              const uint32_t col = 32 * block + i;
              const size_t at = 4 * (size_t{col / 4} * tile.width + r) + col % 4;
              const int quant = int16 ? wide_quant(*GetParam(), q.wide, at) : q.narrow[at];
              const float value = values[(size_t{tile.first} + r) * cols + col];
              EXPECT_NEAR(scale * static_cast<float>(quant), value, scale * 0.5001f);
              EXPECT_GE(quant, int16 ? -127 * 128 : -127);  // the dots rely on it
              sums[i / 16] += quant;
            }
            const size_t at32 = size_t{block} * tile.width + r;
            EXPECT_EQ(q.offsets32[at32], -128 * (sums[0] + sums[1]));
            EXPECT_FLOAT_EQ(q.sums32[at32], scale * static_cast<float>(sums[0] + sums[1]));
            for (uint32_t half = 0; half < 2; ++half) {
              const size_t at16 = size_t{2 * block + half} * tile.width + r;
              EXPECT_EQ(q.offsets16[at16], -128 * sums[half]);
              EXPECT_FLOAT_EQ(q.sums16[at16], scale * static_cast<float>(sums[half]));
            }
          }
        }
      }
    }
  }
}

TEST_P(Quantise, DoesNotHideValuesThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (uint32_t where = 0; where < 32; where += 5) {
      std::vector<float> values(64, 1.0f);
      values[32 + where] = bad;
      ActivationBuffer buffer(*GetParam(), 1, 64);
      buffer.set_source(values.data(), 64, 1, 64, false);
      buffer.quantise({0, 1});
      EXPECT_TRUE(std::isfinite(buffer.view().quantised.scales[0]));
      EXPECT_FALSE(std::isfinite(buffer.view().quantised.scales[1]));
    }
  }
}

TEST_P(Quantise, TakesValuesOfEveryMagnitude) {
  for (const float magnitude : {1e-45f, 1e-38f, 1e-31f, 2e-30f, 1e-10f, 1e10f, 3e38f}) {
    std::vector<float> values(32, magnitude);
    values[7] = -magnitude;
    ActivationBuffer buffer(*GetParam(), 1, 32);
    for (const bool int16 : {false, true}) {
      buffer.set_source(values.data(), 32, 1, 32, int16);
      buffer.quantise({0, 1});
      const QuantisedRows& q = buffer.view().quantised;
      const int quant = int16 ? wide_quant(*GetParam(), q.wide, 7) : q.narrow[7];
      const double value = double{q.scales[0]} * quant;
      EXPECT_NEAR(value, -magnitude, magnitude < 1e-30f ? 1e-30 : 1e-6 * magnitude) << magnitude;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Quantise, testing::ValuesIn(tables()), table_name);

}  // namespace
}  // namespace carat::exec::cpu
