#pragma once

// The search for the best block of a super-block whose values are d * scale * q - dmin * min, with a stored scale and
// min for each sub-block and halves d and dmin for all: Q2_K, Q4_K and Q5_K. First each sub-block is fitted alone,
// which fixes d and dmin; then each chooses the stored scale and min with the least error of what the block will really
// hold; then d and dmin are fitted once more to all levels and the choice is repeated.

#include <array>
#include <cstdint>

#include "quant/block_search.h"
#include "quant/blocks.h"

namespace carat::quant {

// kLargestScale: of what is stored; kReach: how far scales and mins may move from those of the sub-block alone.
template <int kSubBlock, int kLargestScale, int kReach>
struct AffineSuperBlock {
  static constexpr int kSubBlocks = kSuperBlock / kSubBlock;
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

  static SuperBlockSamples load(const float* values, const float* importance) {
    const Weights weights(importance, kSuperBlock);
    SuperBlockSamples samples;
    for (int j = 0; j < kSubBlocks; ++j) {
      samples[j] = load_samples<kSubBlock>(values, weights, kSubBlock * j, kLargestHalf * kLargestScale);
    }
    return samples;
  }

  static int stored_multiple(float value, float unit) {
    return static_cast<int>(std::clamp(std::nearbyint(value * inverse_or_zero(unit)), 0.0f, float{kLargestScale}));
  }

  // Each sub-block on its own. Mins are subtracted and stored without sign, so offsets are at most 0.
  static Choice first_choice(const SuperBlockSamples& samples, Levels levels) {
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

  // Moves each stored scale and min by at most kReach, to the least error.
  static void settle(Choice& choice, const SuperBlockSamples& samples, Levels levels) {
    choice.error = 0.0f;
    for (int j = 0; j < kSubBlocks; ++j) {
      const int scale_end = std::min(choice.scales[j] + kReach, kLargestScale);
      const int min_end = std::min(choice.mins[j] + kReach, kLargestScale);
      const int min_begin = std::max(choice.mins[j] - kReach, 0);
      float least = std::numeric_limits<float>::infinity();
      const int scale_begin = std::max(choice.scales[j] - kReach, 0);
      for (int scale = scale_begin; scale <= scale_end; ++scale) {
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
  static Choice refit(const Choice& choice, const SuperBlockSamples& samples, Levels levels) {
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

  static Choice choose(const SuperBlockSamples& samples, Levels levels) {
    Choice choice = first_choice(samples, levels);
    settle(choice, samples, levels);
    Choice next = refit(choice, samples, levels);
    settle(next, samples, levels);
    return next.error < choice.error ? next : choice;
  }
};

}  // namespace carat::quant
