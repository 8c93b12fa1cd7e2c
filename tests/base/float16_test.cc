#include "base/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "support/random.h"

namespace carat {
namespace {

// A format with `fraction` fraction bits and exponents `lowest` to `highest` of its normal numbers, by the definition
// in IEEE 754: the reference that shares nothing with the bit tricks under test.
struct SmallFloat {
  int fraction, lowest, highest;

  double value(uint32_t bits) const {  // without the sign
    const uint32_t exponent = bits >> fraction;
    const double part = std::ldexp(static_cast<double>(bits & ((1u << fraction) - 1)), -fraction);
    return exponent == 0 ? std::ldexp(part, lowest) : std::ldexp(1.0 + part, lowest + static_cast<int>(exponent) - 1);
  }

  // The encoding of |value| rounded to nearest, ties to even; infinity when it rounds beyond the largest number.
  uint32_t round(double magnitude) const {
    const uint32_t infinity = static_cast<uint32_t>(highest - lowest + 2) << fraction;
    const int exponent = magnitude == 0 ? lowest : std::max(lowest, std::ilogb(magnitude));
    // Exact: a double has room for the scaled value, and nearbyint rounds ties to even.
    const double unit = std::nearbyint(std::ldexp(magnitude, fraction - exponent));
    const double rounded = std::ldexp(unit, exponent - fraction);
    if (rounded >= std::ldexp(1.0, highest + 1)) return infinity;
    uint32_t low = 0, high = infinity;  // values grow with their encodings
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      (value(middle) <= rounded ? low : high) = middle;
    }
    return low;
  }
};

constexpr SmallFloat kHalf = {10, -14, 15};
constexpr SmallFloat kBfloat = {7, -126, 127};

TEST(Half, EveryEncodingHasItsValueAndReturns) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half);
    const uint32_t magnitude = bits & 0x7fff;
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    if (magnitude > 0x7c00) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(half_to_float(float_to_half(value)))) << bits;
      continue;
    }
    if (magnitude == 0x7c00) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_EQ(std::fabs(static_cast<double>(value)), kHalf.value(magnitude)) << bits;
    }
    ASSERT_EQ(float_to_half(value), half) << bits;
  }
}

TEST(Bfloat, EveryEncodingReturns) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto bfloat = static_cast<uint16_t>(bits);
    const float value = bfloat_to_float(bfloat);
    if ((bits & 0x7fff) > 0x7f80) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(value))));
      continue;
    }
    if ((bits & 0x7fff) < 0x7f80) {
      ASSERT_EQ(std::fabs(static_cast<double>(value)), kBfloat.value(bits & 0x7fff));
    }
    ASSERT_EQ(float_to_bfloat(value), bfloat);
  }
}

void expect_nearest(float value) {
  const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto what = std::bit_cast<uint32_t>(value);
  ASSERT_EQ(float_to_half(value), sign | kHalf.round(magnitude)) << what;
  ASSERT_EQ(float_to_bfloat(value), sign | kBfloat.round(magnitude)) << what;
}

TEST(Rounding, TiesGoToTheEvenNeighbourAndNothingElseIsATie) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float below = half_to_float(static_cast<uint16_t>(bits));
    const float above = half_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((static_cast<double>(below) + above) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      expect_nearest(value);
      expect_nearest(-value);
    }
  }
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {  // the middle between two bfloats has the bits 0x8000 below
    for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u}) expect_nearest(std::bit_cast<float>(bits << 16 | low));
  }
}

TEST(Rounding, RandomFloatsOfEveryMagnitude) {
  test::Random random(3);
  for (int i = 0; i < 500000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random.bits()));
    if (std::isfinite(value)) expect_nearest(value);
  }
}

TEST(Rounding, TheEdgesOfTheRange) {
  EXPECT_EQ(float_to_half(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00) << "the middle rounds to infinity";
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(float_to_half(0x1p-25f), 0) << "half of the least subnormal is a tie, and zero is even";
  EXPECT_EQ(float_to_half(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bfloat(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bfloat(std::numeric_limits<float>::infinity()), 0x7f80);
}

}  // namespace
}  // namespace carat
