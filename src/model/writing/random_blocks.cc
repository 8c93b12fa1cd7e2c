#include "model/writing/random_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "model/writing/random_words.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace carat::model {

using quant::Format;

namespace {

// Eight signed bytes with a triangular distribution over -127..127 (never -128, which no quantiser writes): the sum of
// two uniform 7-bit numbers, minus 127. Lanes cannot carry into each other.
uint64_t triangular_bytes(Words& words) {
  const uint64_t sum = (words.next() & repeat_byte(0x7f)) + (words.next() & repeat_byte(0x7f)) + repeat_byte(1);
  return sum ^ repeat_byte(0x80);
}
constexpr double kTriangularByteVariance = 2.0 * (128.0 * 128.0 - 1.0) / 12.0;

// Sixteen nibbles, triangular over 1..15 with mean 8.
uint64_t triangular_nibbles_around_8(Words& words) {
  return (words.next() & repeat_byte(0x77)) + (words.next() & repeat_byte(0x77)) + repeat_byte(0x11);
}
constexpr double kTriangularNibbleVariance = 2.0 * (8.0 * 8.0 - 1.0) / 12.0;

// Sixteen nibbles, nearly triangular over 0..15 with mean 7.5: the sum of two 3-bit numbers and a bit.
uint64_t triangular_nibbles(Words& words) {
  const uint64_t first = words.next();
  return (first & repeat_byte(0x77)) + (words.next() & repeat_byte(0x77)) + ((first >> 3) & repeat_byte(0x11));
}
constexpr double kNibbleVariance = kTriangularNibbleVariance + 0.25;

constexpr double uniform_variance(double values) { return (values * values - 1.0) / 12.0; }
// Of the integers -n/2 .. n/2 - 1, whose mean is -1/2.
constexpr double uniform_mean_square(double values) { return uniform_variance(values) + 0.25; }

// K-quant sub-block scales: six bits in 32..63, and mins that differ from them in the two lowest bits.
constexpr double kScaleMeanSquare = 47.5 * 47.5 + uniform_variance(32.0);
constexpr double kScaleMinusMinMeanSquare = 2.0 * uniform_variance(4.0);
// Mean square of scale * q - centre * min = scale * (q - centre) + centre * (scale - min).
constexpr double k_quant_mean_square(double variance, double centre) {
  return kScaleMeanSquare * variance + centre * centre * kScaleMinusMinMeanSquare;
}

// Q2_K: scales 8..15, the min nibble equal to the scale.
constexpr double kQ2MeanSquare = (11.5 * 11.5 + uniform_variance(8.0)) * uniform_variance(4.0);
constexpr double kQ3MeanSquare = uniform_mean_square(64.0) * uniform_mean_square(8.0);
// Q6_K: scales 64..127 or -128..-65.
constexpr double kQ6ScaleMeanSquare = (95.5 * 95.5 + 96.5 * 96.5) / 2.0 + uniform_variance(64.0);
constexpr double kQ6MeanSquare = kQ6ScaleMeanSquare * uniform_mean_square(64.0);
// One element of each block holds -8, the extreme a quantiser gives to the largest value.
constexpr double kQ4_0MeanSquare = (31.0 * kTriangularNibbleVariance + 64.0) / 32.0;

constexpr double iq4_nl_mean_square() {
  double sum = 0.0;
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < 8; ++b) {
      for (int c = 0; c < 2; ++c) sum += double(quant::kIq4NlValues[a + b + c]) * quant::kIq4NlValues[a + b + c];
    }
  }
  return sum / 128.0;
}

constexpr double mxfp4_mean_square() {
  double sum = 0.0;
  for (const int value : quant::kMxfp4Values) sum += double(value) * value;
  return sum / 16.0;
}

constexpr double iq4_xs_mean_square() {
  double sum = 0.0;
  for (const int value : quant::kIq4NlValues) sum += double(value) * value;
  return sum / 16.0 * uniform_mean_square(64.0);
}

// Of 2 n + 1 for the integers n from 0 to count - 1.
constexpr double odd_mean_square(double count) { return (4.0 * count * count - 1.0) / 3.0; }

// Of the values of a codebook's levels, every entry as likely as the others. `unit` is what a value is multiplied by.
template <size_t kEntries, size_t kLevels>
constexpr double codebook_mean_square(const std::array<uint16_t, kEntries>& codebook, const uint8_t (&values)[kLevels],
                                      double unit) {
  constexpr int kBits = kLevels == 4 ? 2 : 3;
  constexpr int kElements = kLevels == 4 ? 8 : 4;
  double sum = 0.0;
  for (const uint16_t levels : codebook) {
    for (int i = 0; i < kElements; ++i) {
      const int value = values[(levels >> (kBits * i)) & (kLevels - 1)];
      sum += double(value) * value;
    }
  }
  return sum * unit * unit / static_cast<double>(kEntries * kElements);
}

constexpr double iq1_mean_square() {
  double sum = 0.0;
  for (const uint16_t levels : quant::kIq1Codebook) {
    for (int i = 0; i < 8; ++i) {
      const int value = ((levels >> (2 * i)) & 3) - 1;
      sum += double(value) * value + 1.0 / 64.0;  // whichever sign the eighth has
    }
  }
  return sum / (8.0 * quant::kIq1Codebook.size());
}

// A digit of a random byte of TQ1_0, less 1.
constexpr double tq1_mean_square() {
  constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  double quants = 0.0, high = 0.0;
  for (int byte = 0; byte < 256; ++byte) {
    for (int n = 0; n < 5; ++n) {
      const int q = (byte * kPowers[n] % 256 * 3 >> 8) - 1;
      quants += q * q;
      if (n < 4) high += q * q;
    }
  }
  return (48.0 * quants + 4.0 * high) / 256.0 / 256.0;
}

// 0, 1, 1 or 2 less 1.
constexpr double kTernaryMeanSquare = 0.5;

// Of the dequantised values of a block under a scale of 1.
struct Statistics {
  Format format;
  double mean_square;
  double min_per_scale;  // the block's second half is this times its scale; 0 where there is none
};

constexpr Statistics kStatistics[] = {
    {Format::kQ8_0, kTriangularByteVariance, 0.0},
    {Format::kQ4_0, kQ4_0MeanSquare, 0.0},
    {Format::kQ4_1, kNibbleVariance, -7.5},
    {Format::kQ5_0, uniform_mean_square(32.0), 0.0},
    {Format::kQ5_1, uniform_variance(32.0), -15.5},
    {Format::kIQ4_NL, iq4_nl_mean_square(), 0.0},
    {Format::kQ2_K, kQ2MeanSquare, 1.5},
    {Format::kQ3_K, kQ3MeanSquare, 0.0},
    {Format::kQ4_K, k_quant_mean_square(kNibbleVariance, 7.5), 7.5},
    {Format::kQ5_K, k_quant_mean_square(uniform_variance(32.0), 15.5), 15.5},
    {Format::kQ6_K, kQ6MeanSquare, 0.0},
    {Format::kIQ4_XS, iq4_xs_mean_square(), 0.0},
    {Format::kIQ3_S, odd_mean_square(16.0) * codebook_mean_square(quant::kIq3SCodebook, quant::kIq3SValues, 1.0), 0.0},
    {Format::kIQ3_XXS, odd_mean_square(16.0) * codebook_mean_square(quant::kIq3XxsCodebook, quant::kIq3XxsValues, 0.25),
     0.0},
    {Format::kIQ2_S, odd_mean_square(16.0) * codebook_mean_square(quant::kIq2SCodebook, quant::kIq2Values, 0.125), 0.0},
    {Format::kIQ2_XS, odd_mean_square(16.0) * codebook_mean_square(quant::kIq2XsCodebook, quant::kIq2Values, 0.125),
     0.0},
    {Format::kIQ2_XXS, odd_mean_square(16.0) * codebook_mean_square(quant::kIq2XxsCodebook, quant::kIq2Values, 0.125),
     0.0},
    {Format::kIQ1_S, odd_mean_square(8.0) * iq1_mean_square(), 0.0},
    {Format::kIQ1_M, odd_mean_square(8.0) * iq1_mean_square(), 0.0},
    {Format::kTQ1_0, tq1_mean_square(), 0.0},
    {Format::kTQ2_0, kTernaryMeanSquare, 0.0},
    {Format::kQ1_0, 1.0, 0.0},
    {Format::kQ2_0, kTernaryMeanSquare, 0.0},
};

// The 12 bytes of eight 6-bit scales and mins of Q4_K and Q5_K, four lanes at a time (layout: docs/gemma4.md 8.2).
void fill_scales_and_mins(uint8_t (&bytes)[12], Words& words) {
  constexpr uint32_t kLanes = 0x01010101u;
  const uint64_t random = words.next();
  const auto low = static_cast<uint32_t>(random);
  const auto high = static_cast<uint32_t>(random >> 32);
  const uint32_t scales_0_3 = (low & (kLanes * 31)) | (kLanes * 32);
  const uint32_t scales_4_7 = (high & (kLanes * 31)) | (kLanes * 32);
  const uint32_t mins_0_3 = scales_0_3 ^ ((low >> 5) & (kLanes * 3));
  const uint32_t mins_4_7 = scales_4_7 ^ ((high >> 5) & (kLanes * 3));
  const uint32_t packed[3] = {scales_0_3 | ((scales_4_7 & (kLanes * 0x30)) << 2),
                              mins_0_3 | ((mins_4_7 & (kLanes * 0x30)) << 2),
                              (scales_4_7 & (kLanes * 15)) | ((mins_4_7 & (kLanes * 15)) << 4)};
  std::memcpy(bytes, packed, sizeof packed);
}

// Approximately normal with mean 0 and variance 1 after scaling: the sum of four uniform 16-bit numbers.
template <typename Stored, typename Convert>
void fill_floats(uint64_t key, float mean, float deviation, uint64_t first, uint64_t count, std::byte* out,
                 Convert convert) {
  const auto scale = static_cast<float>(deviation / std::sqrt(4.0 * uniform_variance(65536.0)));
  Words words(key, first);
  for (uint64_t n = 0; n < count; ++n) {
    const uint64_t word = words.next();
    const uint64_t pairs = (word & 0x0000ffff0000ffffu) + ((word >> 16) & 0x0000ffff0000ffffu);
    const auto sum = static_cast<int32_t>((pairs & 0xffffffffu) + (pairs >> 32)) - 2 * 65535;
    const Stored stored = convert(mean + static_cast<float>(sum) * scale);
    std::memcpy(out + n * sizeof(Stored), &stored, sizeof stored);
  }
}

}  // namespace

uint64_t random_key(uint64_t seed, std::string_view name) {
  uint64_t key = folded_product(seed ^ 0x2545f4914f6cdd1du, 0x9e3779b97f4a7c15u);
  for (const char c : name) key = folded_product(key ^ (static_cast<uint8_t>(c) + 1u), 0xd1b54a32d192ed03u);
  return key;
}

RandomBlocks::RandomBlocks(Format format, float mean, float deviation, uint64_t key)
    : format_(format), mean_(mean), deviation_(deviation), key_(key) {
  if (quant::info(format).block == 1) return;
  CARAT_CHECK(mean == 0.0f && deviation > 0.0f);
  if (format == Format::kMXFP4) {
    prepare_exponents();
    return;
  }
  if (format == Format::kNVFP4) {
    prepare_nvfp4_scales();
    return;
  }
  const auto statistics = std::ranges::find(kStatistics, format, &Statistics::format);
  CARAT_CHECK(statistics != std::end(kStatistics));
  prepare_scales(statistics->mean_square, statistics->min_per_scale);
}

void RandomBlocks::prepare_scales(double mean_square_of_quants, double min_per_scale) {
  // Magnitudes 0.75 to 1.25 of the middle one; half of them negative, because formats without a min are not symmetric.
  constexpr unsigned kMagnitudes = kScales / 2;
  std::array<double, kMagnitudes> magnitudes;
  double sum = 0.0;
  for (unsigned i = 0; i < kMagnitudes; ++i) {
    magnitudes[i] = 0.75 + 0.5 * i / (kMagnitudes - 1);
    sum += magnitudes[i] * magnitudes[i];
  }
  const double unit = deviation_ / std::sqrt(mean_square_of_quants * sum / kMagnitudes);
  // With a min the sign would turn the range around, which quantisers never do: they keep scales of that kind positive.
  const bool has_min = min_per_scale != 0.0;
  for (unsigned i = 0; i < kScales; ++i) {
    const double sign = !has_min && i >= kMagnitudes ? -1.0 : 1.0;
    const double scale = sign * unit * magnitudes[i % kMagnitudes];
    scales_[i] = float_to_half(static_cast<float>(scale));
    mins_[i] = float_to_half(static_cast<float>(scale * min_per_scale));
  }
}

void RandomBlocks::prepare_exponents() {
  // A power of two seldom fits, so two neighbouring ones are mixed: s^2 (1 - p) + (2 s)^2 p is the wanted mean square.
  const double wanted = deviation_ / std::sqrt(mxfp4_mean_square());
  const double power = std::floor(std::log2(wanted));
  const double ratio = wanted / std::exp2(power);
  exponent_ = static_cast<uint8_t>(std::min(253.0, std::max(2.0, power + 128.0)));
  larger_share_ = static_cast<uint8_t>(std::min(255.0, std::round((ratio * ratio - 1.0) / 3.0 * 256.0)));
}

void RandomBlocks::prepare_nvfp4_scales() {
  const double wanted = std::min(deviation_ / std::sqrt(mxfp4_mean_square()), 200.0);
  uint8_t scale = 0;
  while (quant::nvfp4_scale(static_cast<uint8_t>(scale + 1)) <= wanted) ++scale;
  const double low = quant::nvfp4_scale(scale), high = quant::nvfp4_scale(static_cast<uint8_t>(scale + 1));
  exponent_ = scale;
  const double share = (wanted * wanted - low * low) / (high * high - low * low);
  larger_share_ = static_cast<uint8_t>(std::min(255.0, std::round(share * 256.0)));
}

void RandomBlocks::fill(uint64_t first, uint64_t count, std::byte* out) const {
  using namespace quant;
  const auto scale_index = [](Words& words) { return static_cast<size_t>(words.next() >> 57); };
  static_assert(kScales == 1u << (64 - 57));
  switch (format_) {
    case Format::kF32:
      return fill_floats<float>(key_, mean_, deviation_, first, count, out, [](float value) { return value; });
    case Format::kF16:
      return fill_floats<uint16_t>(key_, mean_, deviation_, first, count, out, float_to_half);
    case Format::kBF16:
      return fill_floats<uint16_t>(key_, mean_, deviation_, first, count, out, float_to_bfloat);
    case Format::kQ8_0:
      return fill_blocks<BlockQ8_0>(key_, first, count, out, [&](BlockQ8_0& block, Words& words) {
        block.d = scales_[scale_index(words)];
        for (size_t i = 0; i < sizeof block.quants; i += 8) {
          const uint64_t eight = triangular_bytes(words);
          std::memcpy(block.quants + i, &eight, sizeof eight);
        }
      });
    case Format::kQ4_0:
      return fill_blocks<BlockQ4_0>(key_, first, count, out, [&](BlockQ4_0& block, Words& words) {
        const uint64_t random = words.next();
        block.d = scales_[random >> 57];
        fill_bytes(block.quants, words, triangular_nibbles_around_8);
        block.quants[random & 15] &= 0xf0;
      });
    case Format::kQ4_1:
      return fill_blocks<BlockQ4_1>(key_, first, count, out, [&](BlockQ4_1& block, Words& words) {
        const size_t index = scale_index(words);
        block.d = scales_[index];
        block.m = mins_[index];
        fill_bytes(block.quants, words, triangular_nibbles);
      });
    case Format::kQ5_0:
      return fill_blocks<BlockQ5_0>(key_, first, count, out, [&](BlockQ5_0& block, Words& words) {
        block.d = scales_[scale_index(words)];
        fill_uniform(block.high, words);
        fill_uniform(block.quants, words);
      });
    case Format::kQ5_1:
      return fill_blocks<BlockQ5_1>(key_, first, count, out, [&](BlockQ5_1& block, Words& words) {
        const size_t index = scale_index(words);
        block.d = scales_[index];
        block.m = mins_[index];
        fill_uniform(block.high, words);
        fill_uniform(block.quants, words);
      });
    case Format::kIQ4_NL:
      return fill_blocks<BlockIQ4_NL>(key_, first, count, out, [&](BlockIQ4_NL& block, Words& words) {
        block.d = scales_[scale_index(words)];
        fill_bytes(block.quants, words, triangular_nibbles);
      });
    case Format::kMXFP4:
      return fill_blocks<BlockMXFP4>(key_, first, count, out, [&](BlockMXFP4& block, Words& words) {
        const bool larger = (words.next() >> 56) < larger_share_;
        block.exponent = static_cast<uint8_t>(exponent_ + (larger ? 1 : 0));
        fill_uniform(block.quants, words);
      });
    case Format::kNVFP4:
      return fill_blocks<BlockNVFP4>(key_, first, count, out, [&](BlockNVFP4& block, Words& words) {
        const uint64_t random = words.next();
        for (int k = 0; k < 4; ++k) {
          const bool larger = (random >> (8 * k + 32) & 255) < larger_share_;
          block.scales[k] = static_cast<uint8_t>(exponent_ + (larger ? 1 : 0));
        }
        fill_uniform(block.quants, words);
      });
    default:
      return fill_super_blocks(first, count, out);
  }
}

void RandomBlocks::fill_super_blocks(uint64_t first, uint64_t count, std::byte* out) const {
  using namespace quant;
  const auto scale_index = [](Words& words) { return static_cast<size_t>(words.next() >> 57); };
  switch (format_) {
    case Format::kQ2_K:
      return fill_blocks<BlockQ2_K>(key_, first, count, out, [&](BlockQ2_K& block, Words& words) {
        const size_t index = scale_index(words);
        block.d = scales_[index];
        block.dmin = mins_[index];
        fill_bytes(block.scales, words,
                   [](Words& source) { return ((source.next() & repeat_byte(7)) | repeat_byte(8)) * 0x11; });
        fill_uniform(block.quants, words);
      });
    case Format::kQ3_K:
      return fill_blocks<BlockQ3_K>(key_, first, count, out, [&](BlockQ3_K& block, Words& words) {
        block.d = scales_[scale_index(words)];
        fill_uniform(block.high, words);
        fill_uniform(block.quants, words);
        fill_uniform(block.scales, words);
      });
    case Format::kQ4_K:
      return fill_blocks<BlockQ4_K>(key_, first, count, out, [&](BlockQ4_K& block, Words& words) {
        const size_t index = scale_index(words);
        block.d = scales_[index];
        block.dmin = mins_[index];
        fill_scales_and_mins(block.scales, words);
        fill_bytes(block.quants, words, triangular_nibbles);
      });
    case Format::kQ5_K:
      return fill_blocks<BlockQ5_K>(key_, first, count, out, [&](BlockQ5_K& block, Words& words) {
        const size_t index = scale_index(words);
        block.d = scales_[index];
        block.dmin = mins_[index];
        fill_scales_and_mins(block.scales, words);
        fill_uniform(block.high, words);
        fill_uniform(block.quants, words);
      });
    case Format::kQ6_K:
      return fill_blocks<BlockQ6_K>(key_, first, count, out, [&](BlockQ6_K& block, Words& words) {
        block.d = scales_[scale_index(words)];
        fill_uniform(block.low, words);
        fill_uniform(block.high, words);
        for (size_t i = 0; i < sizeof block.scales; i += 8) {
          const uint64_t random = words.next();
          const uint64_t magnitudes = (random & repeat_byte(63)) + repeat_byte(64);
          const uint64_t eight = magnitudes ^ (((random >> 7) & repeat_byte(1)) * 0xff);
          std::memcpy(block.scales + i, &eight, sizeof eight);
        }
      });
    default:
      return fill_codebook_blocks(first, count, out);
  }
}

}  // namespace carat::model
