// What quantisation must achieve on ordinary data. The comparison with the peer's error is in tests/peer/quant.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "quant/element_values.h"
#include "quant/format.h"
#include "support/random.h"

namespace carat::quant {
namespace {

using test::Random;

std::vector<FormatInfo> writable_formats() {
  std::vector<FormatInfo> rows;
  for (const FormatInfo& row : formats()) {
    if (row.quantise != nullptr) rows.push_back(row);
  }
  return rows;
}

class QuantiseTest : public testing::TestWithParam<FormatInfo> {};

INSTANTIATE_TEST_SUITE_P(Formats, QuantiseTest, testing::ValuesIn(writable_formats()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

std::vector<std::byte> quantise(const FormatInfo& format, const std::vector<float>& values,
                                const float* importance = nullptr) {
  std::vector<std::byte> bytes(format.row_bytes(values.size()));
  format.quantise(values.data(), bytes.data(), values.size(), importance);
  return bytes;
}

std::vector<float> dequantise(const FormatInfo& format, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / format.bytes * format.block);
  format.dequantise(bytes.data(), values.data(), values.size());
  return values;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b, const float* weights = nullptr) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - b[i];
    total += (weights == nullptr ? 1.0 : double{weights[i]}) * difference * difference;
  }
  return total;
}

// RMS error over the RMS of standard normal values: measured, plus 2% so that another good search may differ a little.
double largest_normal_error(Format format) {
  switch (format) {
    case Format::kF32:
      return 0;
    case Format::kF16:
      return 2.1e-4;
    case Format::kBF16:
      return 1.7e-3;
    case Format::kQ8_0:
      return 0.00514;
    case Format::kQ6_K:
      return 0.01725;
    case Format::kQ5_0:
      return 0.0408;
    case Format::kQ5_1:
      return 0.0345;
    case Format::kQ5_K:
      return 0.0352;
    case Format::kQ4_0:
      return 0.0824;
    case Format::kQ4_1:
      return 0.0714;
    case Format::kQ4_K:
      return 0.0713;
    case Format::kQ3_K:
      return 0.1463;
    case Format::kQ2_K:
      return 0.2655;
    case Format::kIQ4_NL:
      return 0.0747;
    case Format::kIQ4_XS:
      return 0.0752;
    case Format::kIQ3_S:
      return 0.1314;
    case Format::kIQ3_XXS:
      return 0.1803;
    case Format::kIQ2_S:
      return 0.2427;
    case Format::kIQ2_XS:
      return 0.2905;
    case Format::kIQ2_XXS:
      return 0.3332;
    case Format::kMXFP4:
      return 0.1136;
    case Format::kNVFP4:
      return 0.0935;
    default:
      ADD_FAILURE() << "no bound for this format";
      return 0;
  }
}

TEST_P(QuantiseTest, ErrorOnNormalValues) {
  const FormatInfo& format = GetParam();
  const std::vector<float> values = Random(5).normals(1 << 18, 0.03f);
  const std::vector<float> back = dequantise(format, quantise(format, values));
  const double relative =
      std::sqrt(squared_error(values, back) / squared_error(values, std::vector<float>(values.size())));
  EXPECT_LE(relative, largest_normal_error(format.format));
}

// However uneven the data, no element is further off than about one step of the format.
TEST_P(QuantiseTest, EveryElementIsNearItsBlock) {
  const FormatInfo& format = GetParam();
  Random random(6);
  std::vector<float> values(1 << 16);
  for (float& value : values) value = 0.1f * std::exp(2.0f * random.normal()) * (random.below(2) != 0 ? 1.0f : -1.0f);
  const std::vector<float> back = dequantise(format, quantise(format, values));
  for (size_t begin = 0; begin < values.size(); begin += format.block) {
    float peak = 0.0f;
    for (size_t i = begin; i < begin + format.block; ++i) peak = std::max(peak, std::fabs(values[i]));
    for (size_t i = begin; i < begin + format.block; ++i) {
      EXPECT_LE(std::fabs(values[i] - back[i]), test::coarseness(format.format) * peak)
          << format.name << " element " << i;
    }
  }
}

// Arithmetic on scales is exact under powers of two as long as halves stay normal.
TEST_P(QuantiseTest, PowersOfTwoChangeNothingButTheScale) {
  const FormatInfo& format = GetParam();
  std::vector<float> values = Random(7).normals(4096);
  const std::vector<float> back = dequantise(format, quantise(format, values));
  for (const float factor : {0.25f, 8.0f}) {
    std::vector<float> scaled = values;
    for (float& value : scaled) value *= factor;
    const std::vector<float> scaled_back = dequantise(format, quantise(format, scaled));
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(scaled_back[i], factor * back[i]) << format.name << " " << i;
  }
}

// Blocks depend on their own values only: any split of the input gives the same bytes, at any address.
TEST_P(QuantiseTest, AnySplitAndAnyAddress) {
  const FormatInfo& format = GetParam();
  const size_t blocks = 13;
  const std::vector<float> values = Random(8).normals(blocks * format.block);
  const std::vector<std::byte> whole = quantise(format, values);
  std::vector<std::byte> parts(3 + whole.size() + 1, std::byte{0xa5});
  for (size_t begin = 0, size = 0; begin < blocks; begin += size) {
    size = std::min<size_t>(blocks - begin, begin % 4 + 1);
    format.quantise(values.data() + begin * format.block, parts.data() + 3 + begin * format.bytes, size * format.block,
                    nullptr);
  }
  EXPECT_EQ(std::memcmp(parts.data() + 3, whole.data(), whole.size()), 0);
  EXPECT_EQ(parts[2], std::byte{0xa5});
  EXPECT_EQ(parts.back(), std::byte{0xa5});
  format.quantise(values.data(), parts.data() + 3, 0, nullptr);
  EXPECT_EQ(std::memcmp(parts.data() + 3, whole.data(), whole.size()), 0);
}

TEST_P(QuantiseTest, ImportanceLowersTheWeightedError) {
  const FormatInfo& format = GetParam();
  Random random(9);
  const std::vector<float> values = random.normals(1 << 16);
  std::vector<float> importance(values.size());
  for (float& weight : importance) weight = std::exp(2.0f * random.normal());
  const std::vector<std::byte> plain = quantise(format, values);
  const std::vector<std::byte> weighted = quantise(format, values, importance.data());
  if (format.block == 1) {
    EXPECT_EQ(plain, weighted);
    return;
  }
  const double plain_error = squared_error(values, dequantise(format, plain), importance.data());
  const double weighted_error = squared_error(values, dequantise(format, weighted), importance.data());
  // MXFP4 has nothing to choose but a power of two.
  EXPECT_LT(weighted_error, (format.format == Format::kMXFP4 ? 1.0 : 0.9) * plain_error);

  // Equal importance is no importance, whatever its size.
  const std::vector<float> equal(values.size(), 1e30f);
  EXPECT_EQ(quantise(format, values, equal.data()), plain);
}

// A block that holds its values exactly is found again: levels that use their whole range, under any finite scale.
TEST(Quantise, RepresentableValuesComeBack) {
  Random random(10);
  const auto check = [&](Format id, int low, int high, bool with_offset) {
    const FormatInfo& format = info(id);
    for (int round = 0; round < 300; ++round) {
      const auto bits = static_cast<unsigned>(random.between(0x0400, 0x5800));
      const double scale = test::half_value(bits);  // the offset is up to 16 times as large
      const double offset = with_offset ? -test::half_value(bits + static_cast<unsigned>(random.below(0x1000))) : 0.0;
      const auto representable = [&](int64_t level) {
        return static_cast<float>(scale * static_cast<double>(level) + offset);
      };
      std::vector<float> values(format.block);
      for (float& value : values) value = representable(random.between(low, high));
      values[random.below(format.block / 2)] = representable(low);
      values[format.block / 2 + random.below(format.block / 2)] = representable(high);
      ASSERT_EQ(dequantise(format, quantise(format, values)), values) << format.name << " scale " << scale;
    }
  };
  check(Format::kQ8_0, -127, 127, false);
  check(Format::kQ4_0, -8, 7, false);
  check(Format::kQ5_0, -16, 15, false);
  check(Format::kQ4_1, 0, 15, true);
  check(Format::kQ5_1, 0, 31, true);
}

// The same for K-quants: random stored scales and mins, the largest of each at the end of its range.
TEST(Quantise, RepresentableSuperBlocksComeBack) {
  Random random(11);
  for (const Format id : {Format::kQ4_K, Format::kQ5_K}) {
    const FormatInfo& format = info(id);
    const int top = id == Format::kQ4_K ? 15 : 31;
    for (int round = 0; round < 200; ++round) {
      const double d = test::half_value(static_cast<unsigned>(random.between(0x1000, 0x3000)));
      const double dmin = test::half_value(static_cast<unsigned>(random.between(0x1800, 0x3000)));
      std::vector<float> values;
      for (int j = 0; j < 8; ++j) {
        const auto scale = static_cast<double>(j == 3 ? 63 : random.between(1, 63));
        const auto min = static_cast<double>(j == 5 ? 63 : random.between(0, 63));
        for (int l = 0; l < 32; ++l) {
          const auto q = static_cast<double>(l == 7 ? 0 : l == 21 ? top : random.between(0, top));
          values.push_back(static_cast<float>(d * scale * q - dmin * min));
        }
      }
      ASSERT_EQ(dequantise(format, quantise(format, values)), values) << format.name << " d " << d << " dmin " << dmin;
    }
  }
}

// Every level that is stored is the nearest one: no other level of the same block is closer to the value.
TEST(Quantise, StoredLevelsAreNearest) {
  const FormatInfo& format = info(Format::kQ8_0);
  const std::vector<float> values = Random(12).normals(1 << 14);
  const std::vector<std::byte> bytes = quantise(format, values);
  for (size_t i = 0; i < values.size(); ++i) {
    const std::byte* block = bytes.data() + i / 32 * format.bytes;
    const double d = test::half_value(std::to_integer<unsigned>(block[0]) | std::to_integer<unsigned>(block[1]) << 8);
    const double level = std::clamp(std::nearbyint(values[i] / d), -127.0, 127.0);
    const double stored = test::element_value(format.format, block, static_cast<int>(i % 32)) / d;
    EXPECT_GE(stored, -127);
    // A value halfway between two levels may go either way.
    EXPECT_LE(std::fabs(stored - values[i] / d), std::fabs(level - values[i] / d) + 1e-4);
  }
}

TEST(Quantise, FloatFormatsRoundToNearestEven) {
  const auto half = [](float value) {
    uint16_t bits;
    info(Format::kF16).quantise(&value, reinterpret_cast<std::byte*>(&bits), 1, nullptr);
    return bits;
  };
  EXPECT_EQ(half(1.0f), 0x3c00);
  EXPECT_EQ(half(1.0f + 0x1p-11f), 0x3c00);      // halfway: even
  EXPECT_EQ(half(1.0f + 3 * 0x1p-11f), 0x3c02);  // halfway: even
  EXPECT_EQ(half(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(half(0x1p-24f), 0x0001);
  EXPECT_EQ(half(0x1p-25f), 0x0000);
  EXPECT_EQ(half(-65504.0f), 0xfbff);
  EXPECT_EQ(half(65520.0f), 0x7c00);
  EXPECT_EQ(half(INFINITY), 0x7c00);
  EXPECT_TRUE(std::isnan(test::half_value(half(NAN))));

  const auto bfloat = [](float value) {
    uint16_t bits;
    info(Format::kBF16).quantise(&value, reinterpret_cast<std::byte*>(&bits), 1, nullptr);
    return bits;
  };
  EXPECT_EQ(bfloat(1.0f), 0x3f80);
  EXPECT_EQ(bfloat(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(bfloat(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(bfloat(-INFINITY), 0xff80);
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(uint32_t{bfloat(NAN)} << 16)));

  for (uint32_t bits = 0; bits < 0x7c00; ++bits) ASSERT_EQ(half(static_cast<float>(test::half_value(bits))), bits);
}

}  // namespace
}  // namespace carat::quant
