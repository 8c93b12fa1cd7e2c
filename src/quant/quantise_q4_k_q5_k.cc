// Quantisation to Q4_K and Q5_K: value = d * scale * q - dmin * min, with 6-bit scale and min per sub-block of 32 and
// halves d and dmin for all eight. First each sub-block is fitted alone, which fixes d and dmin; then each chooses the
// stored scale and min with the least error of what the block will really hold; then d and dmin are fitted once more to
// all levels and the choice is repeated.

#include <array>
#include <cstdint>

#include "quant/block_search.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

constexpr int kSubBlock = 32;
constexpr int kSubBlocks = kSuperBlock / kSubBlock;
constexpr int kLargestScale = 63;

using SuperBlockSamples = std::array<Samples<kSubBlock>, kSubBlocks>;

// What the block stores besides its levels, and the error that follows from it.
struct Choice {
  float d = 0.0f;     // a half
  float dmin = 0.0f;  // a half
  std::array<int, kSubBlocks> scales = {};
  std::array<int, kSubBlocks> mins = {};
  float error = std::numeric_limits<float>::infinity();

  // Both products are exact, so this is what a dequantiser computes.
  Affine fit(int scale, int min) const { return {d * static_cast<float>(scale), -(dmin * static_cast<float>(min))}; }
  Affine sub_block_fit(int j) const { return fit(scales[j], mins[j]); }
};

SuperBlockSamples load(const float* values, const float* importance) {
  const Weights weights(importance, kSuperBlock);
  SuperBlockSamples samples;
  for (int j = 0; j < kSubBlocks; ++j) {
    samples[j] = load_samples<kSubBlock>(values, weights, kSubBlock * j, kLargestHalf * kLargestScale);
  }
  return samples;
}

int stored_multiple(float value, float unit) {
  return static_cast<int>(std::clamp(std::nearbyint(value * inverse_or_zero(unit)), 0.0f, float{kLargestScale}));
}

// Each sub-block on its own. Mins are subtracted and stored without sign, so offsets are at most 0.
Choice first_choice(const SuperBlockSamples& samples, Levels levels) {
  std::array<Affine, kSubBlocks> fits;
  float largest_scale = 0.0f;
  float lowest_offset = 0.0f;
  for (int j = 0; j < kSubBlocks; ++j) {
    if (!samples[j].negligible()) fits[j] = fit_affine(samples[j], levels, 0.0f);
    largest_scale = std::max(largest_scale, fits[j].scale);
    lowest_offset = std::min(lowest_offset, fits[j].offset);
  }
  Choice choice;
  choice.d = half_reaching(largest_scale / kLargestScale);
  choice.dmin = half_reaching(-lowest_offset / kLargestScale);
  for (int j = 0; j < kSubBlocks; ++j) {
    choice.scales[j] = stored_multiple(fits[j].scale, choice.d);
    choice.mins[j] = stored_multiple(-fits[j].offset, choice.dmin);
  }
  return choice;
}

// Moves each stored scale and min by at most one, to the least error.
void settle(Choice& choice, const SuperBlockSamples& samples, Levels levels) {
  choice.error = 0.0f;
  for (int j = 0; j < kSubBlocks; ++j) {
    const int scale_end = std::min(choice.scales[j] + 1, kLargestScale);
    const int min_end = std::min(choice.mins[j] + 1, kLargestScale);
    const int min_begin = std::max(choice.mins[j] - 1, 0);
    float least = std::numeric_limits<float>::infinity();
    for (int scale = std::max(choice.scales[j] - 1, 0); scale <= scale_end; ++scale) {
      for (int min = min_begin; min <= min_end; ++min) {
        const float error = score(samples[j], choice.fit(scale, min), levels).error;
        if (error >= least) continue;
        least = error;
        choice.scales[j] = scale;
        choice.mins[j] = min;
      }
    }
    choice.error += least;
  }
}

// d and dmin by least squares over all elements, for the levels that `choice` gives.
Choice refit(const Choice& choice, const SuperBlockSamples& samples, Levels levels) {
  // x ~ d * u + dmin * v with u = scale * q and v = -min.
  double uu = 0, uv = 0, vv = 0, xu = 0, xv = 0;
  for (int j = 0; j < kSubBlocks; ++j) {
    const Affine fit = choice.sub_block_fit(j);
    const Moments sums = moments(samples[j], inverse_or_zero(fit.scale), fit.offset, levels);
    const ValueSums values = value_sums(samples[j], 0.0f);
    const double scale = choice.scales[j];
    const double min = choice.mins[j];
    uu += scale * scale * sums.qq;
    uv -= scale * min * sums.q;
    vv += min * min * values.weight;
    xu += scale * (sums.xq + static_cast<double>(fit.offset) * sums.q);
    xv -= min * values.x;
  }
  Choice next = choice;
  const double determinant = uu * vv - uv * uv;
  if (determinant > 0) {
    next.d = rounded_to_half(static_cast<float>((xu * vv - xv * uv) / determinant));
    next.dmin = rounded_to_half(static_cast<float>((xv * uu - xu * uv) / determinant));
  } else if (uu > 0) {  // no sub-block uses its min
    next.d = rounded_to_half(static_cast<float>(xu / uu));
  } else if (vv > 0) {  // every sub-block is constant
    next.dmin = rounded_to_half(static_cast<float>(xv / vv));
  }
  return next;
}

Choice choose(const SuperBlockSamples& samples, Levels levels) {
  Choice choice = first_choice(samples, levels);
  settle(choice, samples, levels);
  Choice next = refit(choice, samples, levels);
  settle(next, samples, levels);
  return next.error < choice.error ? next : choice;
}

void pack_scales_and_mins(const Choice& choice, uint8_t (&packed)[12]) {
  for (int j = 0; j < 4; ++j) {
    const int scale = choice.scales[j + 4];
    const int min = choice.mins[j + 4];
    packed[j] = static_cast<uint8_t>(choice.scales[j] | ((scale >> 4) << 6));
    packed[j + 4] = static_cast<uint8_t>(choice.mins[j] | ((min >> 4) << 6));
    packed[j + 8] = static_cast<uint8_t>((scale & 15) | ((min & 15) << 4));
  }
}

// Calls pack_levels(block, j, levels) for each sub-block, after everything else of the block is in place.
template <typename Block, typename PackLevels>
void encode_blocks(const float* values, std::byte* blocks, size_t count, const float* importance, Levels levels,
                   PackLevels pack_levels) {
  for (size_t i = 0; i < count / kSuperBlock; ++i) {
    const float* block_importance = importance == nullptr ? nullptr : importance + i * kSuperBlock;
    const SuperBlockSamples samples = load(values + i * kSuperBlock, block_importance);
    const Choice choice = choose(samples, levels);
    Block block = {};
    block.d = nearest_half(choice.d);
    block.dmin = nearest_half(choice.dmin);
    pack_scales_and_mins(choice, block.scales);
    for (int j = 0; j < kSubBlocks; ++j) {
      pack_levels(block, j, stored_levels(samples[j], choice.sub_block_fit(j), levels));
    }
    store_block(blocks + i * sizeof(Block), block);
  }
}

// Sub-blocks 2i and 2i + 1 are the low and high nibbles of the same 32 bytes.
void pack_nibbles(uint8_t* quants, int j, const std::array<uint8_t, kSubBlock>& levels) {
  uint8_t* bytes = quants + kSubBlock * (j / 2);
  for (int l = 0; l < kSubBlock; ++l) bytes[l] = static_cast<uint8_t>(bytes[l] | ((levels[l] & 15) << (4 * (j % 2))));
}

}  // namespace

void quantise_q4_k(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockQ4_K>(values, blocks, count, importance, {0.0f, 15.0f},
                           [](BlockQ4_K& block, int j, const std::array<uint8_t, kSubBlock>& levels) {
                             pack_nibbles(block.quants, j, levels);
                           });
}

void quantise_q5_k(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockQ5_K>(values, blocks, count, importance, {0.0f, 31.0f},
                           [](BlockQ5_K& block, int j, const std::array<uint8_t, kSubBlock>& levels) {
                             pack_nibbles(block.quants, j, levels);
                             for (int l = 0; l < kSubBlock; ++l) {
                               block.high[l] = static_cast<uint8_t>(block.high[l] | ((levels[l] >> 4) << j));
                             }
                           });
}

}  // namespace carat::quant
