#include "engine/sampling/counter_random.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/sampling/portable_exp.h"

namespace carat::engine {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers the authors of Philox publish with Random123 (kat_vectors).
TEST(CounterRandom, PhiloxGivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandom, SeedAndIndexBothMatterInAllTheirBits) {
  const uint64_t base = random_bits(1, 1);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(random_bits(1 ^ (uint64_t{1} << bit), 1), base) << "seed bit " << bit;
    EXPECT_NE(random_bits(1, 1 ^ (uint64_t{1} << bit)), base) << "index bit " << bit;
  }
}

TEST(PortableExp, IsWithinTwoUnitsOfTheTrueValue) {
  EXPECT_EQ(portable_exp(0.0), 1.0);
  EXPECT_EQ(portable_exp(-1000.0), 0.0);
  EXPECT_EQ(portable_exp(-INFINITY), 0.0);
  for (double x = -700.0; x <= 0.0; x += 0.00917) {
    const long double exact = std::exp(static_cast<long double>(x));
    const long double error = (portable_exp(x) - exact) / exact;
    ASSERT_LT(std::fabs(error), 4.5e-16L) << "x = " << x;
  }
}

}  // namespace
}  // namespace carat::engine
