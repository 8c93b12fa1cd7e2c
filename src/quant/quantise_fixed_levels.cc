// Quantisation to formats whose levels are not evenly spaced: IQ4_NL and IQ4_XS (16 levels and a scale), MXFP4 and
// NVFP4 (the FP4 values and a scale of few bits). For one scale every value takes the nearest level; which scale is
// best is tried out on a grid, and for formats with a half refined by least squares.

#include <array>
#include <cmath>
#include <cstdint>

#include "quant/block_search.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

// The nearest of 16 ascending levels: levels are integers, so what is nearest changes at halves only, and a table over
// halves is exact.
class NearestLevel {
 public:
  constexpr explicit NearestLevel(const std::array<int8_t, 16>& levels) : levels_(levels) {
    int level = 0;
    for (int twice = -kEnd; twice <= kEnd; ++twice) {  // [twice / 2, (twice + 1) / 2)
      while (level < 15 && twice >= levels[level] + levels[level + 1]) ++level;
      table_[twice + kEnd] = static_cast<uint8_t>(level);
    }
  }
  int index(float position) const {
    const float twice = std::floor(std::clamp(2.0f * position, static_cast<float>(-kEnd), static_cast<float>(kEnd)));
    return table_[static_cast<int>(twice) + kEnd];
  }
  float value(int index) const { return levels_[index]; }

 private:
  static constexpr int kEnd = 256;
  std::array<int8_t, 16> levels_;
  std::array<uint8_t, 2 * kEnd + 1> table_{};
};

constexpr NearestLevel kIq4({-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113});
// The FP4 values in order; kFp4Codes says how each is stored.
constexpr NearestLevel kFp4({-12, -8, -6, -4, -3, -2, -1, 0, 0, 1, 2, 3, 4, 6, 8, 12});
constexpr std::array<uint8_t, 16> kFp4Codes = {15, 14, 13, 12, 11, 10, 9, 0, 0, 1, 2, 3, 4, 5, 6, 7};

// The values of a block, one after another.
template <int kCount>
struct Scalars {
  std::array<float, kCount> x;
  std::array<float, kCount> weight;
  float lowest, highest;
};

template <int kCount>
Scalars<kCount> load(const float* values, const Weights& weights, int first, float limit) {
  const Samples<kCount> samples = load_samples<kCount>(values, weights, first, limit);
  Scalars<kCount> scalars = {.x = {}, .weight = {}, .lowest = samples.lowest, .highest = samples.highest};
  std::memcpy(scalars.x.data(), samples.values.data(), sizeof scalars.x);
  std::memcpy(scalars.weight.data(), samples.weights.data(), sizeof scalars.weight);
  return scalars;
}

struct LevelSums {
  float xq = 0.0f, qq = 0.0f;
};

template <int kCount>
LevelSums level_sums(const Scalars<kCount>& values, const NearestLevel& levels, float inverse) {
  LevelSums sums;
  for (int i = 0; i < kCount; ++i) {
    const float q = levels.value(levels.index(values.x[i] * inverse));
    sums.xq += values.weight[i] * q * values.x[i];
    sums.qq += values.weight[i] * q * q;
  }
  return sums;
}

template <int kCount>
float error_of(const Scalars<kCount>& values, const NearestLevel& levels, float scale) {
  const float inverse = inverse_or_zero(scale);
  float error = 0.0f;
  for (int i = 0; i < kCount; ++i) {
    const float residual = values.x[i] - scale * levels.value(levels.index(values.x[i] * inverse));
    error += values.weight[i] * residual * residual;
  }
  return error;
}

// The scale of the least error: either sign, the largest value at either end of the levels, or somewhat inside or
// outside.
template <int kCount>
float fit_level_scale(const Scalars<kCount>& values, const NearestLevel& levels) {
  constexpr int kSteps = 15;
  const float peak = values.highest > -values.lowest ? values.highest : values.lowest;
  if (std::fabs(peak) < kNegligible) return 0.0f;
  float best_explained = 0.0f, best = 0.0f;
  for (const float end : {levels.value(0), levels.value(15)}) {
    for (int i = 0; i < kSteps; ++i) {
      const float target = end * (0.70f + 0.04f * static_cast<float>(i));
      const LevelSums sums = level_sums(values, levels, target / peak);
      const float explained = sums.qq > 0.0f ? sums.xq * sums.xq / sums.qq : 0.0f;
      if (explained <= best_explained) continue;
      best_explained = explained;
      best = sums.xq / sums.qq;
    }
  }
  for (int round = 0; round < 2 && best != 0.0f; ++round) {
    const LevelSums sums = level_sums(values, levels, 1.0f / best);
    if (!(sums.qq > 0.0f)) break;
    best = sums.xq / sums.qq;
  }
  return best;
}

template <int kCount>
float best_half_near(const Scalars<kCount>& values, const NearestLevel& levels, float scale) {
  const int middle = nearest_half(std::fabs(scale));
  float least = std::numeric_limits<float>::infinity(), best = 0.0f;
  for (int bits = std::max(0, middle - 1); bits <= std::min<int>(kLargestHalfBits, middle + 1); ++bits) {
    const float candidate = std::copysign(half_to_float(static_cast<HalfBits>(bits)), scale);
    const float error = error_of(values, levels, candidate);
    if (error >= least) continue;
    least = error;
    best = candidate;
  }
  return best;
}

using SubBlocks = std::array<Scalars<32>, kSuperBlock / 32>;

struct Iq4XsChoice {
  float d = 0.0f;
  std::array<int, kSuperBlock / 32> scales = {};
  float error = std::numeric_limits<float>::infinity();
};

// The best of the stored scales near `middle`, for one sub-block.
void settle(const Scalars<32>& values, float d, int middle, int reach, int& best, float& error) {
  float least = std::numeric_limits<float>::infinity();
  for (int scale = std::max(-32, middle - reach); scale <= std::min(31, middle + reach); ++scale) {
    const float found = error_of(values, kIq4, d * static_cast<float>(scale));
    if (found >= least) continue;
    least = found;
    best = scale;
  }
  error += least;
}

Iq4XsChoice choose_iq4_xs(const SubBlocks& values) {
  std::array<float, kSuperBlock / 32> ideal;
  float largest = 0.0f;
  for (size_t j = 0; j < values.size(); ++j) {
    ideal[j] = fit_level_scale(values[j], kIq4);
    if (std::fabs(ideal[j]) > std::fabs(largest)) largest = ideal[j];
  }
  Iq4XsChoice best;
  if (largest == 0.0f) return {.error = 0.0f};
  for (const float aim : {-32.0f, -30.0f, -28.0f, 31.0f}) {  // where the largest scale comes to lie
    Iq4XsChoice choice;
    choice.d = rounded_to_half(largest / aim);
    for (size_t j = 0; j < values.size(); ++j) {
      choice.scales[j] =
          static_cast<int>(std::nearbyint(std::clamp(ideal[j] * inverse_or_zero(choice.d), -32.0f, 31.0f)));
    }
    for (int round = 0; round < 2; ++round) {
      choice.error = 0.0f;
      double xu = 0, uu = 0;
      for (size_t j = 0; j < values.size(); ++j) {
        settle(values[j], choice.d, choice.scales[j], 2, choice.scales[j], choice.error);
        const double scale = choice.scales[j];
        const LevelSums sums = level_sums(values[j], kIq4, inverse_or_zero(choice.d * static_cast<float>(scale)));
        if (scale == 0) continue;
        xu += scale * sums.xq;
        uu += scale * scale * sums.qq;
      }
      if (choice.error < best.error) best = choice;
      if (uu > 0) choice.d = rounded_to_half(static_cast<float>(xu / uu));
    }
  }
  return best;
}

void pack_iq4(const Scalars<32>& values, float scale, uint8_t* quants) {
  const float inverse = inverse_or_zero(scale);
  for (int l = 0; l < 16; ++l) {
    const int low = kIq4.index(values.x[l] * inverse), high = kIq4.index(values.x[16 + l] * inverse);
    quants[l] = static_cast<uint8_t>(low | high << 4);
  }
}

const float* importance_at(const float* importance, size_t first) {
  return importance == nullptr ? nullptr : importance + first;
}

// The best of the scales unit(first), unit(first + 1), ... unit(last), of which one is half of what reaches the peak.
template <int kCount, typename Unit>
int best_fp4_scale(const Scalars<kCount>& values, int first, int last, Unit unit) {
  int best = first;
  float least = std::numeric_limits<float>::infinity();
  for (int code = first; code <= last; ++code) {
    const float error = error_of(values, kFp4, unit(code));
    if (error >= least) continue;
    least = error;
    best = code;
  }
  return best;
}

template <int kCount>
void pack_fp4(const Scalars<kCount>& values, float scale, uint8_t* quants) {
  const float inverse = inverse_or_zero(scale);
  const auto code = [&](int i) { return kFp4Codes[static_cast<size_t>(kFp4.index(values.x[i] * inverse))]; };
  for (int l = 0; l < kCount / 2; ++l) quants[l] = static_cast<uint8_t>(code(l) | code(kCount / 2 + l) << 4);
}

}  // namespace

void quantise_iq4_nl(const float* values, std::byte* blocks, size_t count, const float* importance) {
  for (size_t i = 0; i < count / kBlock; ++i) {
    const Weights weights(importance_at(importance, i * kBlock), kBlock);
    const auto scalars = load<kBlock>(values + i * kBlock, weights, 0, kLargestHalf * 113.0f);
    const float d = best_half_near(scalars, kIq4, fit_level_scale(scalars, kIq4));
    BlockIQ4_NL block = {.d = static_cast<HalfBits>(float_to_half(d)), .quants = {}};
    pack_iq4(scalars, d, block.quants);
    store_block(blocks + i * sizeof(block), block);
  }
}

void quantise_iq4_xs(const float* values, std::byte* blocks, size_t count, const float* importance) {
  for (size_t i = 0; i < count / kSuperBlock; ++i) {
    const Weights weights(importance_at(importance, i * kSuperBlock), kSuperBlock);
    SubBlocks scalars;
    for (int j = 0; j < kSuperBlock / 32; ++j) {
      scalars[static_cast<size_t>(j)] =
          load<32>(values + i * kSuperBlock, weights, 32 * j, kLargestHalf * 31.0f * 113.0f);
    }
    const Iq4XsChoice choice = choose_iq4_xs(scalars);
    BlockIQ4_XS block = {};
    block.d = nearest_half(std::fabs(choice.d));
    if (choice.d < 0.0f) block.d |= 0x8000u;
    for (int j = 0; j < kSuperBlock / 32; ++j) {
      const auto at = static_cast<size_t>(j);
      const int stored = choice.scales[at] + 32;
      block.scales_low[j / 2] = static_cast<uint8_t>(block.scales_low[j / 2] | (stored & 15) << (4 * (j % 2)));
      block.scales_high = static_cast<uint16_t>(block.scales_high | (stored >> 4) << (2 * j));
      pack_iq4(scalars[at], choice.d * static_cast<float>(choice.scales[at]), block.quants + 16 * j);
    }
    store_block(blocks + i * sizeof(block), block);
  }
}

void quantise_mxfp4(const float* values, std::byte* blocks, size_t count, const float* importance) {
  for (size_t i = 0; i < count / kBlock; ++i) {
    const Weights weights(importance_at(importance, i * kBlock), kBlock);
    const auto scalars = load<kBlock>(values + i * kBlock, weights, 0, 0x1p127f);
    const float peak = std::max(scalars.highest, -scalars.lowest);
    BlockMXFP4 block = {};
    if (peak > 0.0f) {
      const auto unit = [](int code) { return std::ldexp(1.0f, code - 128); };
      // Of 12 units the largest reaches the peak at this exponent; the next below clips it, the next above wastes a
      // level.
      const int middle = std::ilogb(peak / 12.0f) + 128;
      const int code = best_fp4_scale(scalars, std::clamp(middle - 1, 0, 254), std::clamp(middle + 2, 0, 254), unit);
      block.exponent = static_cast<uint8_t>(code);
      pack_fp4(scalars, unit(code), block.quants);
    }
    store_block(blocks + i * sizeof(block), block);
  }
}

void quantise_nvfp4(const float* values, std::byte* blocks, size_t count, const float* importance) {
  constexpr int kLargestScale = 0x7e;
  const auto unit = [](int code) { return nvfp4_scale(static_cast<uint8_t>(code)); };
  for (size_t i = 0; i < count / 64; ++i) {
    const Weights weights(importance_at(importance, i * 64), 64);
    BlockNVFP4 block = {};
    for (int k = 0; k < 4; ++k) {
      const auto scalars = load<16>(values + i * 64, weights, 16 * k, 12.0f * 240.0f);
      const float wanted = std::max(scalars.highest, -scalars.lowest) / 12.0f;
      int middle = 0;
      while (middle < kLargestScale && unit(middle) < wanted) ++middle;
      const int code = best_fp4_scale(scalars, std::max(0, middle - 5), std::min(kLargestScale, middle + 3), unit);
      block.scales[k] = static_cast<uint8_t>(code);
      pack_fp4(scalars, unit(code), block.quants + 8 * k);
    }
    store_block(blocks + i * sizeof(block), block);
  }
}

}  // namespace carat::quant
