// Values no weight should have: quantisation never fails, repeats itself, and keeps the damage to the element.

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <string>
#include <vector>

#include "quant/element_values.h"
#include "quant/format.h"
#include "support/random.h"

namespace carat::quant {
namespace {

using test::Random;

constexpr size_t kCount = 512;

std::vector<FormatInfo> block_formats() {
  std::vector<FormatInfo> rows;
  for (const FormatInfo& row : formats()) {
    if (row.quantise != nullptr && row.block > 1) rows.push_back(row);
  }
  return rows;
}

class HostileValuesTest : public testing::TestWithParam<FormatInfo> {
 protected:
  std::vector<std::byte> quantise(const std::vector<float>& values, const float* importance = nullptr) const {
    std::vector<std::byte> bytes(GetParam().row_bytes(values.size()));
    GetParam().quantise(values.data(), bytes.data(), values.size(), importance);
    return bytes;
  }

  std::vector<float> round_trip(const std::vector<float>& values) const {
    std::vector<float> back(values.size());
    GetParam().dequantise(quantise(values).data(), back.data(), back.size());
    return back;
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, HostileValuesTest, testing::ValuesIn(block_formats()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST_P(HostileValuesTest, ZerosStayPositiveZeros) {
  for (const float zero : {0.0f, -0.0f}) {
    for (const float value : round_trip(std::vector<float>(kCount, zero))) {
      EXPECT_EQ(value, 0.0f);
      EXPECT_FALSE(std::signbit(value));
    }
  }
}

TEST_P(HostileValuesTest, NotANumberCountsAsZero) {
  std::vector<float> with_nan = Random(1).normals(kCount);
  std::vector<float> with_zero = with_nan;
  for (const size_t i : {0, 5, 31, 32, 300, 511}) {
    with_nan[i] = i % 2 == 0 ? NAN : -NAN;
    with_zero[i] = 0.0f;
  }
  EXPECT_EQ(quantise(with_nan), quantise(with_zero));
  EXPECT_EQ(quantise(std::vector<float>(kCount, NAN)), quantise(std::vector<float>(kCount, 0.0f)));
}

TEST_P(HostileValuesTest, InfinityAndHugeValuesAreClamped) {
  for (const float huge : {INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e12f}) {
    std::vector<float> values = Random(2).normals(kCount);
    values[40] = huge;
    const std::vector<float> back = round_trip(values);
    for (const float value : back) ASSERT_TRUE(std::isfinite(value)) << huge;
    EXPECT_EQ(std::signbit(back[40]), std::signbit(huge));
    // The largest NVFP4 holds is 2880, under a scale that suits its neighbours no worse 2688.
    EXPECT_GE(std::fabs(back[40]),
              GetParam().format == Format::kNVFP4 ? 2600.0f : 60000.0f * (1.0f - test::coarseness(GetParam().format)));
    // Other blocks know nothing of it.
    const std::vector<float> clean = round_trip(Random(2).normals(kCount));
    for (size_t i = 256; i < kCount; ++i) EXPECT_EQ(back[i], clean[i]);
  }
}

TEST_P(HostileValuesTest, ValuesBelowTheSmallestHalfVanish) {
  if (GetParam().format == Format::kMXFP4) GTEST_SKIP() << "skipped: its scales go down to 2^-128";
  for (const float tiny : {FLT_MIN, FLT_TRUE_MIN, -FLT_TRUE_MIN, 0x1p-30f}) {
    std::vector<float> values(kCount, tiny);
    values[3] = -tiny;
    for (const float value : round_trip(values)) EXPECT_EQ(value, 0.0f) << tiny;
  }
}

// Where scales are subnormal halves, errors grow to a step of 2^-24 but not to the size of the values.
TEST_P(HostileValuesTest, SubnormalScalesAreUsed) {
  if (!test::has_zero_level(GetParam().format) || GetParam().format == Format::kNVFP4) {
    GTEST_SKIP() << "skipped: the smallest scale times a level is more than these steps";
  }
  Random random(3);
  for (int exponent = -24; exponent <= -8; ++exponent) {
    std::vector<float> values(kCount);
    for (float& value : values) value = std::ldexp(random.uniform(-1.0f, 1.0f), exponent);
    const std::vector<float> back = round_trip(values);
    for (size_t i = 0; i < kCount; ++i) {
      const float step =
          std::max(0x1p-24f, std::ldexp(1.0f, exponent) * std::max(0.16f, test::coarseness(GetParam().format)));
      EXPECT_LE(std::fabs(back[i] - values[i]), step) << GetParam().name << " 2^" << exponent << " element " << i;
    }
  }
}

TEST_P(HostileValuesTest, ConstantBlocks) {
  for (const float constant : {1.0f, -1.0f, 0.37f, -1000.0f, 0.05f}) {
    for (const float value : round_trip(std::vector<float>(kCount, constant))) {
      // Few scales, or a codebook without a group of equal values, leave a distance.
      const bool coarse = GetParam().format == Format::kNVFP4 || test::coarseness(GetParam().format) > 0.13f;
      const float distance = coarse ? test::coarseness(GetParam().format) : 0.002f;
      EXPECT_NEAR(value, constant, std::fabs(constant) * distance) << GetParam().name;
    }
  }
}

TEST_P(HostileValuesTest, OneValueAmongZeros) {
  if (!test::has_zero_level(GetParam().format)) GTEST_SKIP() << "skipped: the format has no level for 0";
  for (const float lone : {3.0f, -3.0f}) {
    std::vector<float> values(kCount, 0.0f);
    values[77] = lone;
    const std::vector<float> back = round_trip(values);
    // In Q4_K and Q5_K a zero above a negative value is the difference of two products that may not quite cancel.
    for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(back[i], values[i], 0.004f) << i;
  }
}

TEST_P(HostileValuesTest, UselessImportanceIsIgnored) {
  const std::vector<float> values = Random(4).normals(kCount);
  const std::vector<std::byte> plain = quantise(values);
  for (const float useless : {0.0f, -1.0f, NAN, INFINITY, -INFINITY}) {
    const std::vector<float> importance(kCount, useless);
    EXPECT_EQ(quantise(values, importance.data()), plain) << useless;
  }
  // A few usable weights among useless ones decide alone, and the rest stays finite.
  std::vector<float> importance(kCount, NAN);
  for (size_t i = 0; i < kCount; i += 16) importance[i] = FLT_MAX;
  const auto error_where_it_counts = [&](const std::vector<std::byte>& bytes) {
    std::vector<float> back(kCount);
    GetParam().dequantise(bytes.data(), back.data(), kCount);
    double total = 0;
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_TRUE(std::isfinite(back[i]));
      if (i % 16 == 0) total += std::pow(double{back[i]} - values[i], 2);
    }
    return total;
  };
  const double factor = GetParam().format == Format::kMXFP4 ? 1.0 : 0.8;  // a power of two is all there is to choose
  EXPECT_LE(error_where_it_counts(quantise(values, importance.data())), factor * error_where_it_counts(plain));
}

TEST_P(HostileValuesTest, RandomBitPatternsRepeat) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> values(kCount);
    for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random.bits()));
    const std::vector<std::byte> bytes = quantise(values);
    ASSERT_EQ(quantise(values), bytes);
    std::vector<float> back(kCount);
    GetParam().dequantise(bytes.data(), back.data(), kCount);
    for (const float value : back) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace carat::quant
