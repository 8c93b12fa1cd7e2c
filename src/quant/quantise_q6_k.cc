// Quantisation to Q6_K: value = d * scale * q, with a signed 8-bit scale per sub-block of 16 and one half d for all
// sixteen. With d fixed there are few scales worth trying, so each sub-block tries them all and keeps the one with the
// least error; then d is fitted once more to all levels and each scale may move by one.

#include <array>
#include <cstdint>

#include "quant/block_search.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

constexpr int kSubBlock = 16;
constexpr int kSubBlocks = kSuperBlock / kSubBlock;
constexpr Levels kLevels = {-32.0f, 31.0f};
constexpr int kLowestScale = -128;
constexpr int kHighestScale = 127;

using SuperBlockSamples = std::array<Samples<kSubBlock>, kSubBlocks>;

// What the block stores besides its levels, and the error that follows from it.
struct Choice {
  float d = 0.0f;  // a half
  std::array<int, kSubBlocks> scales = {};
  float error = std::numeric_limits<float>::infinity();

  Affine sub_block_fit(int k) const { return {d * static_cast<float>(scales[k]), 0.0f}; }
};

SuperBlockSamples load(const float* values, const float* importance) {
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

// Scales that put either end of the levels near the peak, within kReach of its magnitude. The largest scale is aimed at
// kAim rather than 127, which leaves the sub-block that matters most a choice on both sides.
Choice first_choice(const SuperBlockSamples& samples) {
  constexpr float kReach = 0.06f;
  constexpr float kAim = 120.0f;
  float largest = 0.0f;
  for (const auto& sub_block : samples) largest = std::max(largest, std::fabs(sub_block.peak()));
  if (largest < kNegligible) return {.error = 0.0f};
  Choice choice = {.d = half_reaching(largest / (-kLevels.low * kAim)), .error = 0.0f};
  for (int k = 0; k < kSubBlocks; ++k) {
    const float target = std::fabs(samples[k].peak()) / (-kLevels.low * choice.d);
    const int middle = static_cast<int>(std::nearbyint(target));
    const int reach = static_cast<int>(std::ceil(kReach * target));
    ScaleSearch search(samples[k], choice.d);
    for (int magnitude = std::max(middle - reach, 0); magnitude <= middle + reach; ++magnitude) {
      search.try_scale(magnitude);
      search.try_scale(-magnitude);
    }
    choice.scales[k] = search.best();
    choice.error += search.error();
  }
  return choice;
}

// d by least squares over all elements for the levels of `choice`, then scales that differ by at most one.
Choice refit(const Choice& choice, const SuperBlockSamples& samples) {
  double uu = 0, xu = 0;  // x ~ d * u with u = scale * q
  for (int k = 0; k < kSubBlocks; ++k) {
    const Moments sums = moments(samples[k], inverse_or_zero(choice.sub_block_fit(k).scale), 0.0f, kLevels);
    const double scale = choice.scales[k];
    uu += scale * scale * sums.qq;
    xu += scale * sums.xq;
  }
  if (!(uu > 0)) return choice;
  Choice next = {.d = rounded_to_half(static_cast<float>(xu / uu)), .error = 0.0f};
  for (int k = 0; k < kSubBlocks; ++k) {
    ScaleSearch search(samples[k], next.d);
    for (const int step : {0, -1, 1}) search.try_scale(choice.scales[k] + step);
    next.scales[k] = search.best();
    next.error += search.error();
  }
  return next;
}

void pack_levels(BlockQ6_K& block, int k, const std::array<uint8_t, kSubBlock>& levels) {
  const int half = k / 8;  // see dequantise_q6_k
  const int group = (k % 8) / 2;
  uint8_t* low = block.low + 64 * half + 32 * (group % 2) + 16 * (k % 2);
  uint8_t* high = block.high + 32 * half + 16 * (k % 2);
  for (int l = 0; l < kSubBlock; ++l) {
    low[l] = static_cast<uint8_t>(low[l] | ((levels[l] & 15) << (4 * (group / 2))));
    high[l] = static_cast<uint8_t>(high[l] | ((levels[l] >> 4) << (2 * group)));
  }
}

}  // namespace

void quantise_q6_k(const float* values, std::byte* blocks, size_t count, const float* importance) {
  for (size_t i = 0; i < count / kSuperBlock; ++i) {
    const float* block_importance = importance == nullptr ? nullptr : importance + i * kSuperBlock;
    const SuperBlockSamples samples = load(values + i * kSuperBlock, block_importance);
    const Choice first = first_choice(samples);
    const Choice second = refit(first, samples);
    const Choice& choice = second.error < first.error ? second : first;
    BlockQ6_K block = {};
    block.d = nearest_half(choice.d);
    for (int k = 0; k < kSubBlocks; ++k) {
      block.scales[k] = static_cast<int8_t>(choice.scales[k]);
      pack_levels(block, k, stored_levels(samples[k], choice.sub_block_fit(k), kLevels));
    }
    store_block(blocks + i * sizeof(block), block);
  }
}

}  // namespace carat::quant
