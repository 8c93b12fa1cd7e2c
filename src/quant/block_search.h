#pragma once

// What the quantisers share: fitting x ~ scale * q + offset, with q an integer from a small range, so that the weighted
// squared error is least. For fixed (scale, offset) the best q is the nearest level; for fixed q the best (scale,
// offset) is a linear least-squares problem. Neither tells which assignment of levels is the best one, so the
// quantisers try a grid of starting scales and refine the winner.
//
// Arithmetic runs four lanes wide in a fixed order: the same input gives the same bytes on every machine.

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include "base/float16.h"
#include "quant/blocks.h"

namespace carat::quant {

// --- Four floats at once ---

using Lanes = float __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;

inline Lanes splat(float value) { return Lanes{value, value, value, value}; }

// Compilers do not turn the comparisons into the instructions, which take the second operand likewise when one is NaN.
inline Lanes minimum(Lanes a, Lanes b) {
#ifdef __SSE2__
  return _mm_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

inline Lanes maximum(Lanes a, Lanes b) {
#ifdef __SSE2__
  return _mm_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

inline float sum(Lanes lanes) { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }

inline Lanes load_lanes(const float* values) {
  Lanes lanes;
  std::memcpy(&lanes, values, sizeof(lanes));
  return lanes;
}

// --- Blocks ---

inline constexpr float kLargestHalf = 65504.0f;
inline constexpr HalfBits kLargestHalfBits = 0x7bff;
// Magnitudes below half of the smallest positive half are nearest to zero whatever the scale.
inline constexpr float kNegligible = 0x1p-25f;

// What a half can hold of a scale: rounded to nearest even, never infinite.
inline HalfBits nearest_half(float value) { return float_to_half(std::clamp(value, -kLargestHalf, kLargestHalf)); }
inline float rounded_to_half(float value) { return half_to_float(nearest_half(value)); }

// The nearest half to `value` >= 0, or the next above when that is too small: multiples of it that fill their bits must
// reach `value`. Only subnormal halves are ever too coarse for that.
inline float half_reaching(float value) {
  constexpr float kSlack = 1.0f + 1.0f / 256.0f;
  const HalfBits nearest = nearest_half(value);
  const bool reaches = half_to_float(nearest) * kSlack >= value || nearest == kLargestHalfBits;
  return half_to_float(reaches ? nearest : static_cast<HalfBits>(nearest + 1));
}

// The values of one block or sub-block and how much the squared error of each counts.
template <int kCount>
struct Samples {
  std::array<Lanes, kCount / kLanes> values;
  std::array<Lanes, kCount / kLanes> weights;
  float lowest;   // of the values
  float highest;  // of the values

  float peak() const { return highest > -lowest ? highest : lowest; }  // the value of largest magnitude, with its sign
  bool negligible() const { return std::fabs(peak()) < kNegligible; }
};

// A value no block can hold must not spoil its neighbours: NaN counts as 0 and anything beyond `limit` as the limit.
template <int kCount>
void load_values(Samples<kCount>& samples, const float* values, float limit) {
  Lanes lowest = splat(limit);
  Lanes highest = splat(-limit);
  for (int i = 0; i < kCount / kLanes; ++i) {
    const Lanes raw = load_lanes(values + i * kLanes);
    const Lanes numbers = raw == raw ? raw : splat(0.0f);
    samples.values[i] = minimum(maximum(numbers, splat(-limit)), splat(limit));
    lowest = minimum(lowest, samples.values[i]);
    highest = maximum(highest, samples.values[i]);
  }
  samples.lowest = std::min({lowest[0], lowest[1], lowest[2], lowest[3]});
  samples.highest = std::max({highest[0], highest[1], highest[2], highest[3]});
}

inline float usable_importance(float importance) {
  return importance > 0.0f && std::isfinite(importance) ? importance : 0.0f;  // NaN compares false
}

// How the elements of a block weigh against each other. Importance is divided by the largest of the whole block, so
// that sums stay finite; negative, infinite and NaN importance count as 0. Without importance, or when it is 0
// throughout, all weights are equal.
class Weights {
 public:
  Weights(const float* importance, int count) {
    if (importance == nullptr) return;
    for (int i = 0; i < count; ++i) largest_ = std::max(largest_, usable_importance(importance[i]));
    if (largest_ > 0.0f) importance_ = importance;
  }

  // Of the elements first to first + kLanes - 1.
  Lanes lanes(int first) const {
    if (importance_ == nullptr) return splat(1.0f);
    Lanes weights;
    for (int lane = 0; lane < kLanes; ++lane) weights[lane] = usable_importance(importance_[first + lane]) / largest_;
    return weights;
  }

 private:
  const float* importance_ = nullptr;
  float largest_ = 0.0f;
};

// kCount elements of a block, from element `first` on.
template <int kCount>
Samples<kCount> load_samples(const float* values, const Weights& weights, int first, float limit) {
  Samples<kCount> samples;
  load_values(samples, values + first, limit);
  for (int i = 0; i < kCount / kLanes; ++i) samples.weights[i] = weights.lanes(first + i * kLanes);
  return samples;
}

// --- Fits ---

// The integers a format can store in one element.
struct Levels {
  float low;
  float high;
};

struct Affine {
  float scale = 0.0f;
  float offset = 0.0f;
};

// A fit and its weighted squared error.
struct ScoredFit {
  Affine fit;
  float error = std::numeric_limits<float>::infinity();

  // Ties keep the earlier candidate.
  void keep_better(const ScoredFit& other) {
    if (other.error < error) *this = other;
  }
};

// Weighted sums over a block once every value has its level q; x is the value less an offset.
struct Moments {
  float q = 0.0f;
  float qq = 0.0f;
  float xq = 0.0f;
};

// Clamping first keeps the operand small enough for the addition that rounds: floats near 1.5 * 2^23 are integers, so
// the sum is rounded to the nearest one (even when halfway).
inline Lanes nearest_level(Lanes position, Levels levels) {
  const Lanes integers_only = splat(0x1.8p23f);
  const Lanes clamped = minimum(maximum(position, splat(levels.low)), splat(levels.high));
  return (clamped + integers_only) - integers_only;
}

// The sums for the levels nearest to x * inverse_scale.
template <int kCount>
Moments moments(const Samples<kCount>& samples, float inverse_scale, float offset, Levels levels) {
  Lanes sum_q = splat(0.0f), sum_qq = splat(0.0f), sum_xq = splat(0.0f);
  for (int i = 0; i < kCount / kLanes; ++i) {
    const Lanes x = samples.values[i] - offset;
    const Lanes q = nearest_level(x * inverse_scale, levels);
    const Lanes weighted = samples.weights[i] * q;
    sum_q += weighted;
    sum_qq += weighted * q;
    sum_xq += weighted * x;
  }
  return {sum(sum_q), sum(sum_qq), sum(sum_xq)};
}

// A scale of 0 can only store q = 0.
inline float inverse_or_zero(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

// Every value takes the nearest level under `fit`.
template <int kCount>
ScoredFit score(const Samples<kCount>& samples, Affine fit, Levels levels) {
  const float inverse_scale = inverse_or_zero(fit.scale);
  Lanes total = splat(0.0f);
  for (int i = 0; i < kCount / kLanes; ++i) {
    const Lanes x = samples.values[i] - fit.offset;
    const Lanes residual = x - fit.scale * nearest_level(x * inverse_scale, levels);
    total += samples.weights[i] * (residual * residual);
  }
  return {fit, sum(total)};
}

// The levels score() counted with, less levels.low: what the formats store.
template <int kCount>
std::array<uint8_t, kCount> stored_levels(const Samples<kCount>& samples, Affine fit, Levels levels) {
  const float inverse_scale = inverse_or_zero(fit.scale);
  std::array<uint8_t, kCount> stored;
  for (int i = 0; i < kCount / kLanes; ++i) {
    const Lanes q = nearest_level((samples.values[i] - fit.offset) * inverse_scale, levels) - levels.low;
    for (int lane = 0; lane < kLanes; ++lane) stored[i * kLanes + lane] = static_cast<uint8_t>(q[lane]);
  }
  return stored;
}

// The best scale among the halves around `fit.scale`, so many steps towards zero and away from it.
template <int kCount>
ScoredFit search_halves(const Samples<kCount>& samples, Affine fit, Levels levels, int inward, int outward) {
  const int middle = nearest_half(std::fabs(fit.scale));
  ScoredFit best;
  for (int bits = std::max(0, middle - inward); bits <= std::min<int>(kLargestHalfBits, middle + outward); ++bits) {
    const float scale = std::copysign(half_to_float(static_cast<HalfBits>(bits)), fit.scale);
    best.keep_better(score(samples, {scale, fit.offset}, levels));
  }
  return best;
}

// The scale of the least error for a format without offset. One end of the levels is steered to the peak, or somewhat
// beyond it (the peak is clipped) or inside; for each start the least-squares scale of its levels is what counts.
template <int kCount>
float fit_scale(const Samples<kCount>& samples, Levels levels) {
  constexpr float kFirst = -0.9f, kStep = 0.3f;  // in levels; finer or wider grids gain less than 0.1% of the error
  constexpr int kSteps = 10;
  float best_explained = 0.0f;  // least squares explains (sum of xq)^2 / (sum of qq) of the block's energy
  float best_scale = 0.0f;
  for (const float end : {levels.low, levels.high}) {
    for (int i = 0; i < kSteps; ++i) {
      const float outward = kFirst + kStep * static_cast<float>(i);
      const float target = end < 0.0f ? end - outward : end + outward;
      const Moments sums = moments(samples, target / samples.peak(), 0.0f, levels);
      const float explained = sums.qq > 0.0f ? sums.xq * sums.xq / sums.qq : 0.0f;
      if (explained > best_explained) {
        best_explained = explained;
        best_scale = sums.xq / sums.qq;
      }
    }
  }
  return best_scale;
}

// Weighted sums that do not depend on the levels.
struct ValueSums {
  float weight = 0.0f;
  float x = 0.0f;
};

template <int kCount>
ValueSums value_sums(const Samples<kCount>& samples, float offset) {
  Lanes sum_weight = splat(0.0f), sum_x = splat(0.0f);
  for (int i = 0; i < kCount / kLanes; ++i) {
    sum_weight += samples.weights[i];
    sum_x += samples.weights[i] * (samples.values[i] - offset);
  }
  return {sum(sum_weight), sum(sum_x)};
}

struct LeastSquares {
  Affine fit;
  float explained;  // how much of the energy of x the fit removes
};

// The best scale and offset for fixed levels, where the sums' x is relative to `offset` and the offset found is at most
// `highest_offset`. Nothing when all levels are equal.
inline std::optional<LeastSquares> least_squares(const Moments& sums, const ValueSums& values, float offset,
                                                 float highest_offset) {
  constexpr float kRoundingNoise = 2e-6f;  // with equal levels the determinant would be 0 but for rounding
  const float determinant = values.weight * sums.qq - sums.q * sums.q;
  if (!(determinant > kRoundingNoise * values.weight * sums.qq)) return std::nullopt;
  float scale = (values.weight * sums.xq - sums.q * values.x) / determinant;
  float shift = (values.x - scale * sums.q) / values.weight;
  if (offset + shift > highest_offset) {
    shift = highest_offset - offset;
    scale = (sums.xq - shift * sums.q) / sums.qq;
  }
  const float explained = 2.0f * (scale * sums.xq + shift * values.x) - scale * scale * sums.qq -
                          2.0f * scale * shift * sums.q - shift * shift * values.weight;
  return LeastSquares{{scale, offset + shift}, explained};
}

// The fit of the least error for a format whose levels start at 0. The starting scales spread the levels over the range
// of the values, or over somewhat less (the highest are clipped) or more.
template <int kCount>
Affine fit_affine(const Samples<kCount>& samples, Levels levels, float highest_offset) {
  constexpr float kFirst = -1.0f, kStep = 0.3f;  // in levels
  constexpr int kSteps = 10;
  const float offset = std::min(samples.lowest, highest_offset);
  const float range = samples.highest - offset;
  if (range < kNegligible) return {0.0f, offset};
  const ValueSums values = value_sums(samples, offset);
  Affine best = {range / levels.high, offset};
  float best_explained = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < kSteps; ++i) {
    const float inverse_scale = (levels.high + kFirst + kStep * static_cast<float>(i)) / range;
    const Moments sums = moments(samples, inverse_scale, offset, levels);
    const auto found = least_squares(sums, values, offset, highest_offset);
    if (!found || found->explained <= best_explained) continue;
    best = found->fit;
    best_explained = found->explained;
  }
  // Under the winner's scale and offset some values are nearer to other levels; fitting to those lowers the error
  // again.
  constexpr int kRefinements = 2;
  for (int i = 0; i < kRefinements && best.scale > 0.0f; ++i) {
    const Moments sums = moments(samples, 1.0f / best.scale, best.offset, levels);
    const auto found = least_squares(sums, value_sums(samples, best.offset), best.offset, highest_offset);
    if (!found) break;
    best = found->fit;
  }
  return best;
}

}  // namespace carat::quant
