#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "quant/codebooks.h"
#include "quant/element_values.h"
#include "quant/format.h"

namespace carat::quant {
namespace {

using test::element_value;
using test::random_blocks;
using test::Scales;

class DequantiseTest : public testing::TestWithParam<FormatInfo> {};

INSTANTIATE_TEST_SUITE_P(Formats, DequantiseTest, testing::ValuesIn(formats().begin(), formats().end()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

// Bit for bit, except that any NaN equals any other.
void expect_same(float found, float expected, const FormatInfo& format, size_t block, uint32_t e) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << format.name << " block " << block << " element " << e << ": " << found;
  } else {
    EXPECT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected))
        << format.name << " block " << block << " element " << e << ": " << found << ", expected " << expected;
  }
}

void expect_elements(const FormatInfo& format, const std::byte* blocks, const std::vector<float>& found) {
  for (size_t i = 0; i < found.size() / format.block; ++i) {
    for (uint32_t e = 0; e < format.block; ++e) {
      const double expected = element_value(format.format, blocks + i * format.bytes, static_cast<int>(e));
      expect_same(found[i * format.block + e], static_cast<float>(expected), format, i, e);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(DequantiseTest, RandomBytesGiveTheExactValueOfEachElement) {
  const FormatInfo& format = GetParam();
  const size_t blocks = 100'000 / format.block;
  for (const Scales scales : {Scales::kAny, Scales::kFinite, Scales::kSubnormal}) {
    const std::vector<std::byte> bytes = random_blocks(format, blocks, 17, scales);
    std::vector<float> values(blocks * format.block);
    format.dequantise(bytes.data(), values.data(), values.size());
    expect_elements(format, bytes.data(), values);
  }
}

TEST_P(DequantiseTest, AnyAddressAndAnyNumberOfBlocks) {
  const FormatInfo& format = GetParam();
  constexpr float kUntouched = 123456.0f;
  for (const size_t blocks : {0, 1, 2, 3, 7, 33}) {
    for (const size_t shift : {1, 2, 3, 5}) {
      const std::vector<std::byte> bytes = random_blocks(format, blocks, 31 + blocks, Scales::kFinite);
      std::vector<std::byte> shifted(shift + bytes.size());  // exactly as long as needed: a sanitizer sees over-reads
      if (!bytes.empty()) std::memcpy(shifted.data() + shift, bytes.data(), bytes.size());
      std::vector<float> values(blocks * format.block + 2, kUntouched);
      format.dequantise(shifted.data() + shift, values.data() + 1, blocks * format.block);
      EXPECT_EQ(values.front(), kUntouched);
      EXPECT_EQ(values.back(), kUntouched);
      expect_elements(format, bytes.data(), {values.begin() + 1, values.end() - 1});
    }
  }
}

// Every half, not only those that random bytes hit.
TEST(Dequantise, EveryHalfAndEveryBfloat) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const std::byte bytes[2] = {static_cast<std::byte>(bits & 255), static_cast<std::byte>(bits >> 8)};
    float value = 0.0f;
    info(Format::kF16).dequantise(bytes, &value, 1);
    expect_same(value, static_cast<float>(test::half_value(bits)), info(Format::kF16), bits, 0);
    info(Format::kBF16).dequantise(bytes, &value, 1);
    expect_same(value, std::bit_cast<float>(bits << 16), info(Format::kBF16), bits, 0);
  }
}

// A codebook is right when all of its entries are: a sum (FNV-1a, low byte first) of what llama.cpp's functions gave
// for every code, and some entries as its source has them.
TEST(Dequantise, CodebooksAreThoseOfTheFormat) {
  const auto sum = [](const auto& codebook) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const uint16_t entry : codebook) {
      for (const unsigned byte : {entry & 255u, static_cast<unsigned>(entry) >> 8}) {
        hash = (hash ^ byte) * 0x100000001b3u;
      }
    }
    return hash;
  };
  EXPECT_EQ(sum(kIq2XxsCodebook), 0x6fca17f5c451905du);
  EXPECT_EQ(sum(kIq2XsCodebook), 0x29d6ac8e0e6b14e3u);
  EXPECT_EQ(sum(kIq2SCodebook), 0x641f9aa3fbd98694u);
  EXPECT_EQ(sum(kIq3XxsCodebook), 0x79d733576d562547u);
  EXPECT_EQ(sum(kIq3SCodebook), 0x55b224116d1e5ca2u);
  EXPECT_EQ(sum(kIq1Codebook), 0x03f1880817eeffa4u);
  EXPECT_EQ(kIq2XxsCodebook.back(), 0xa904);
  EXPECT_EQ(kIq2XsCodebook.back(), 0xaaaa);
  EXPECT_EQ(kIq1Codebook[2], 0x0005);
  EXPECT_EQ(kIq3SCodebook[1], 0x0001);
}

// Values worked out by hand, so that the oracle itself is not the only witness.
TEST(Dequantise, HandWrittenBlocks) {
  std::vector<std::byte> q4_0(18, std::byte{0x88});
  q4_0[0] = std::byte{0x00};
  q4_0[1] = std::byte{0x3c};  // 1.0
  q4_0[2] = std::byte{0xf0};  // element 0: 0 - 8, element 16: 15 - 8
  std::vector<float> values(32);
  info(Format::kQ4_0).dequantise(q4_0.data(), values.data(), 32);
  EXPECT_EQ(values[0], -8.0f);
  EXPECT_EQ(values[16], 7.0f);
  EXPECT_EQ(values[1], 0.0f);

  std::vector<std::byte> q4_k(144, std::byte{0});
  q4_k[1] = std::byte{0x38};   // d = 0.5
  q4_k[3] = std::byte{0x34};   // dmin = 0.25
  q4_k[4] = std::byte{0x80};   // sub-block 4: high bits of the scale are 2
  q4_k[8] = std::byte{0x40};   // sub-block 4: high bits of the min are 1
  q4_k[12] = std::byte{0x21};  // sub-block 4: scale 1 + 32, min 2 + 16
  q4_k[16 + 64] = std::byte{0x03};
  std::vector<float> wide(256);
  info(Format::kQ4_K).dequantise(q4_k.data(), wide.data(), 256);
  EXPECT_EQ(wide[128], 0.5f * 33 * 3 - 0.25f * 18);
  EXPECT_EQ(wide[129], -0.25f * 18);
  EXPECT_EQ(wide[0], 0.0f);
}

}  // namespace
}  // namespace carat::quant
