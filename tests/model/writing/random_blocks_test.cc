#include "model/writing/random_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

namespace carat::model {
namespace {

class RandomBlocksOf : public ::testing::TestWithParam<quant::Format> {};

TEST_P(RandomBlocksOf, HaveTheMeanAndDeviationAskedFor) {
  const quant::FormatInfo& format = quant::info(GetParam());
  constexpr size_t kCount = size_t{1} << 18;
  for (const float deviation : {0.0136f, 0.0625f, 1.0f}) {  // 1 / sqrt of 5376 and 256
    std::vector<std::byte> blocks(format.row_bytes(kCount));
    RandomBlocks(GetParam(), 0.0f, deviation, 42).fill(0, kCount / format.block, blocks.data());
    std::vector<float> values(kCount);
    format.dequantise(blocks.data(), values.data(), kCount);
    double sum = 0.0, squares = 0.0, largest = 0.0;
    for (const float value : values) {
      sum += value;
      squares += double{value} * value;
      largest = std::max(largest, std::fabs(double{value}));
    }
    // Blocks share a scale, so a deviation is known to about 1 / sqrt(2 * blocks).
    EXPECT_NEAR(std::sqrt(squares / kCount) / deviation, 1.0, 0.02);
    EXPECT_NEAR(sum / kCount / deviation, 0.0, 0.02);
    EXPECT_LT(largest / deviation, 8.0);
  }
}

TEST_P(RandomBlocksOf, DoNotDependOnHowTheWorkIsSplit) {
  const quant::FormatInfo& format = quant::info(GetParam());
  constexpr size_t kBlocks = 1000;
  const RandomBlocks source(GetParam(), 0.0f, 0.1f, 7);
  std::vector<std::byte> whole(kBlocks * format.bytes), parts(whole.size());
  source.fill(0, kBlocks, whole.data());
  for (size_t first = 0; first < kBlocks; first += 37) {
    source.fill(first, std::min<size_t>(37, kBlocks - first), parts.data() + first * format.bytes);
  }
  EXPECT_EQ(whole, parts);
}

TEST_P(RandomBlocksOf, NeverRepeatABlock) {
  const quant::FormatInfo& format = quant::info(GetParam());
  if (format.block == 1) return;  // two bytes repeat by chance
  constexpr size_t kBlocks = 4096;
  std::vector<std::byte> blocks(kBlocks * format.bytes);
  RandomBlocks(GetParam(), 0.0f, 0.1f, 7).fill(0, kBlocks, blocks.data());
  std::set<std::vector<std::byte>> seen;
  for (size_t n = 0; n < kBlocks; ++n) {
    const auto begin = blocks.begin() + static_cast<ptrdiff_t>(n * format.bytes);
    EXPECT_TRUE(seen.insert(std::vector<std::byte>(begin, begin + format.bytes)).second) << n;
  }
}

std::vector<quant::Format> all_formats() {
  std::vector<quant::Format> all;
  for (const quant::FormatInfo& format : quant::formats()) all.push_back(format.format);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Formats, RandomBlocksOf, ::testing::ValuesIn(all_formats()),
                         [](const auto& test) { return std::string(quant::info(test.param).name); });

TEST(RandomBlocks, FloatsTakeAMean) {
  std::vector<float> values(10000);
  RandomBlocks(quant::Format::kF32, 3.0f, 0.3f, 5).fill(0, values.size(), reinterpret_cast<std::byte*>(values.data()));
  double sum = 0.0;
  for (const float value : values) {
    sum += value;
    EXPECT_GT(value, 1.9f);  // no value is more than 3.5 deviations away
    EXPECT_LT(value, 4.1f);
  }
  EXPECT_NEAR(sum / static_cast<double>(values.size()), 3.0, 0.02);
}

TEST(RandomBlocks, KeysDependOnSeedAndName) {
  const std::set<uint64_t> keys = {random_key(1, "a"),  random_key(2, "a"),  random_key(1, "b"),
                                   random_key(1, "ab"), random_key(1, "ba"), random_key(1, "")};
  EXPECT_EQ(keys.size(), 6u);
}

}  // namespace
}  // namespace carat::model
