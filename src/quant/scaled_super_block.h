#pragma once

// The search for the best block of a super-block whose values are d * scale * q, with a signed scale for each sub-block
// of 16 and one half d for all: Q3_K and Q6_K. With d fixed there are few scales worth trying, so each sub-block tries
// them all and keeps the one with the least error; then d is fitted once more to all levels and each scale may move by
// one.

#include <array>
#include <cmath>
#include <cstdint>

#include "quant/block_search.h"
#include "quant/blocks.h"

namespace carat::quant {

// Levels kLowest .. -kLowest - 1; scales kLowestScale .. -kLowestScale - 1.
template <int kLowest, int kLowestScale>
struct ScaledSuperBlock {
  static constexpr int kSubBlock = 16;
  static constexpr int kSubBlocks = kSuperBlock / kSubBlock;
  static constexpr Levels kLevels = {kLowest, -kLowest - 1};
  static constexpr int kHighestScale = -kLowestScale - 1;

  using SuperBlockSamples = std::array<Samples<kSubBlock>, kSubBlocks>;

  // What the block stores besides its levels, and the error that follows from it.
  struct Choice {
    float d = 0.0f;  // a half
    std::array<int, kSubBlocks> scales = {};
    float error = std::numeric_limits<float>::infinity();

    Affine sub_block_fit(int k) const { return {d * static_cast<float>(scales[k]), 0.0f}; }
  };

  static SuperBlockSamples load(const float* values, const float* importance) {
    const Weights weights(importance, kSuperBlock);
    SuperBlockSamples samples;
    for (int k = 0; k < kSubBlocks; ++k) {
      samples[k] = load_samples<kSubBlock>(values, weights, kSubBlock * k, kLargestHalf * kHighestScale);
    }
    return samples;
  }

  // The best of one sub-block's scales.
  class ScaleSearch {
   public:
    ScaleSearch(const Samples<kSubBlock>& samples, float d) : samples_(samples), d_(d) {}

    void try_scale(int scale) {
      if (scale < kLowestScale || scale > kHighestScale) return;
      const float error = score(samples_, {d_ * static_cast<float>(scale), 0.0f}, kLevels).error;
      if (error >= least_) return;
      least_ = error;
      best_ = scale;
    }

    int best() const { return best_; }
    float error() const { return least_; }

   private:
    const Samples<kSubBlock>& samples_;
    float d_;
    int best_ = 0;
    float least_ = std::numeric_limits<float>::infinity();
  };

  // Scales that put either end of the levels near the peak, within `reach` of its magnitude. The largest scale is aimed
  // at `aim` rather than the highest there is, which leaves the sub-block that matters most a choice on both sides.
  static Choice first_choice(const SuperBlockSamples& samples, float aim, float reach) {
    float largest = 0.0f;
    for (const auto& sub_block : samples) largest = std::max(largest, std::fabs(sub_block.peak()));
    if (largest < kNegligible) return {.error = 0.0f};
    Choice choice = {.d = half_reaching(largest / (-kLevels.low * aim)), .error = 0.0f};
    for (int k = 0; k < kSubBlocks; ++k) {
      const float target = std::fabs(samples[k].peak()) / (-kLevels.low * choice.d);
      const int middle = static_cast<int>(std::nearbyint(target));
      const int around = static_cast<int>(std::ceil(reach * target));
      ScaleSearch search(samples[k], choice.d);
      for (int magnitude = std::max(middle - around, 0); magnitude <= middle + around; ++magnitude) {
        search.try_scale(magnitude);
        search.try_scale(-magnitude);
      }
      choice.scales[k] = search.best();
      choice.error += search.error();
    }
    return choice;
  }

  // d by least squares over all elements for the levels of `choice`, then scales that differ by at most one.
  static Choice refit(const Choice& choice, const SuperBlockSamples& samples) {
    double uu = 0, xu = 0;  // x ~ d * u with u = scale * q
    for (int k = 0; k < kSubBlocks; ++k) {
      const Moments sums = moments(samples[k], inverse_or_zero(choice.sub_block_fit(k).scale), 0.0f, kLevels);
      const double scale = choice.scales[k];
      uu += scale * scale * sums.qq;
      xu += scale * sums.xq;
    }
    if (!(uu > 0)) return choice;
    return settle(choice, rounded_to_half(static_cast<float>(xu / uu)), samples);
  }

  // The scales of `choice`, or their neighbours, under another d.
  static Choice settle(const Choice& choice, float d, const SuperBlockSamples& samples) {
    Choice next = {.d = d, .error = 0.0f};
    for (int k = 0; k < kSubBlocks; ++k) {
      ScaleSearch search(samples[k], next.d);
      for (const int step : {0, -1, 1}) search.try_scale(choice.scales[k] + step);
      next.scales[k] = search.best();
      next.error += search.error();
    }
    return next;
  }
};

}  // namespace carat::quant
