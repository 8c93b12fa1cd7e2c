#include "quant/format.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace carat::quant {
namespace {

struct Expected {
  uint32_t id;
  const char* name;
  uint32_t block;
  uint32_t bytes;
  double bits_per_weight;
  bool writable;
};

// Spec sections 8.1 and 8.2.
constexpr Expected kExpected[] = {
    {0, "F32", 1, 4, 32, true},
    {1, "F16", 1, 2, 16, true},
    {30, "BF16", 1, 2, 16, true},
    {8, "Q8_0", 32, 34, 8.5, true},
    {2, "Q4_0", 32, 18, 4.5, true},
    {3, "Q4_1", 32, 20, 5.0, true},
    {6, "Q5_0", 32, 22, 5.5, true},
    {7, "Q5_1", 32, 24, 6.0, true},
    {10, "Q2_K", 256, 84, 2.625, true},
    {11, "Q3_K", 256, 110, 3.4375, true},
    {12, "Q4_K", 256, 144, 4.5, true},
    {13, "Q5_K", 256, 176, 5.5, true},
    {14, "Q6_K", 256, 210, 6.5625, true},
    {20, "IQ4_NL", 32, 18, 4.5, true},
    {39, "MXFP4", 32, 17, 4.25, true},
    {40, "NVFP4", 64, 36, 4.5, true},
    {23, "IQ4_XS", 256, 136, 4.25, true},
    {21, "IQ3_S", 256, 110, 3.4375, true},
    {18, "IQ3_XXS", 256, 98, 3.0625, true},
    {22, "IQ2_S", 256, 82, 2.5625, true},
    {17, "IQ2_XS", 256, 74, 2.3125, true},
    {16, "IQ2_XXS", 256, 66, 2.0625, true},
    {29, "IQ1_M", 256, 56, 1.75, false},
    {19, "IQ1_S", 256, 50, 1.5625, false},
    {34, "TQ1_0", 256, 54, 1.6875, false},
    {35, "TQ2_0", 256, 66, 2.0625, false},
    {41, "Q1_0", 128, 18, 1.125, false},
    {42, "Q2_0", 64, 18, 2.25, false},
};

TEST(FormatTable, HoldsWhatTheSpecificationSays) {
  ASSERT_EQ(formats().size(), std::size(kExpected));
  for (const Expected& expected : kExpected) {
    SCOPED_TRACE(expected.name);
    const FormatInfo* row = find_format(expected.id);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(static_cast<uint32_t>(row->format), expected.id);
    EXPECT_EQ(row->name, expected.name);
    EXPECT_EQ(row->block, expected.block);
    EXPECT_EQ(row->bytes, expected.bytes);
    EXPECT_EQ(row->bits_per_weight(), expected.bits_per_weight);
    EXPECT_NE(row->dequantise, nullptr);
    EXPECT_EQ(row->quantise != nullptr, expected.writable);
    EXPECT_EQ(row->row_bytes(512), 512 / expected.block * expected.bytes);
    EXPECT_EQ(&info(row->format), row);
    EXPECT_EQ(find_format(expected.name), row);
  }
}

TEST(FormatTable, NamesIgnoreCase) {
  EXPECT_EQ(find_format("q4_k"), &info(Format::kQ4_K));
  EXPECT_EQ(find_format("Iq4_nL"), &info(Format::kIQ4_NL));
  EXPECT_EQ(find_format("bf16"), &info(Format::kBF16));
}

TEST(FormatTable, UnknownIsNull) {
  for (const char* name : {"", "Q4", "Q4_K_M", "Q4_K ", " Q4_K", "Q4-K", "F64"}) {
    EXPECT_EQ(find_format(std::string_view(name)), nullptr) << name;
  }
  std::set<uint32_t> known;
  for (const Expected& expected : kExpected) known.insert(expected.id);
  for (uint32_t id = 0; id < 300; ++id) EXPECT_EQ(find_format(id) != nullptr, known.contains(id)) << id;
  EXPECT_EQ(find_format(0xffffffffu), nullptr);
}

}  // namespace
}  // namespace carat::quant
