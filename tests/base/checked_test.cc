#include "base/checked.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "support/random.h"

namespace carat {
namespace {

// 32-bit arithmetic against the same in 64 bits, on numbers of every magnitude and at the edges.
TEST(Checked, AgreesWithWideArithmetic) {
  const auto fits = [](uint64_t wide) {
    return wide <= 0xffffffff ? std::optional(static_cast<uint32_t>(wide)) : std::nullopt;
  };
  test::Random random(5);
  const auto draw = [&]() -> uint32_t {
    constexpr std::array<uint32_t, 6> kEdges = {0, 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    if (random.below(4) == 0) return kEdges[random.below(kEdges.size())];
    return static_cast<uint32_t>(random.bits() >> (32 + random.below(32)));
  };
  for (int i = 0; i < 200000; ++i) {
    const uint32_t a = draw(), b = draw();
    const uint64_t wide_a = a, wide_b = b;
    ASSERT_EQ(checked_add(a, b), fits(wide_a + wide_b)) << a << " + " << b;
    ASSERT_EQ(checked_mul(a, b), fits(wide_a * wide_b)) << a << " * " << b;
    if (b == 0) continue;
    const uint64_t quotient = (wide_a + wide_b - 1) / wide_b;
    ASSERT_EQ(ceil_div(a, b), quotient) << a << " / " << b;
    ASSERT_EQ(checked_round_up(a, b), fits(quotient * wide_b)) << a << " up to " << b;
  }
}

TEST(Checked, SixtyFourBits) {
  constexpr uint64_t kMax = ~uint64_t{0};
  EXPECT_EQ(checked_add(kMax, uint64_t{0}), kMax);
  EXPECT_EQ(checked_add(kMax, uint64_t{1}), std::nullopt);
  EXPECT_EQ(checked_mul(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(checked_mul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1), 0xffffffff00000000u);
  EXPECT_EQ(checked_mul(uint64_t{0}, kMax), 0u);
  EXPECT_EQ(ceil_div(kMax, uint64_t{2}), uint64_t{1} << 63);
  EXPECT_EQ(checked_round_up(kMax, uint64_t{32}), std::nullopt);
  EXPECT_EQ(checked_round_up(kMax - 31, uint64_t{32}), kMax - 31);
}

}  // namespace
}  // namespace carat
