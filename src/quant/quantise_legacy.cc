// Quantisation to the formats with one scale per 32 elements. The error that is minimised is that of what the block
// will really hold: scale and offset are halves while levels are chosen, not rounded afterwards.

#include <cstdint>
#include <limits>

#include "quant/block_search.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

constexpr Levels kLevels8 = {-127.0f, 127.0f};  // -128 is left out: kernels may negate a level
constexpr Levels kLevels5 = {-16.0f, 15.0f};
constexpr Levels kLevels4 = {-8.0f, 7.0f};
constexpr Levels kUnsigned5 = {0.0f, 31.0f};
constexpr Levels kUnsigned4 = {0.0f, 15.0f};

// At 127 levels neighbouring halves are as far apart as good scales are, so all near the obvious one are tried. A scale
// that clips the peak is rarely the best, hence fewer towards zero.
Affine fit_8_bits(const Samples<kBlock>& samples) {
  return search_halves(samples, {std::fabs(samples.peak()) / kLevels8.high, 0.0f}, kLevels8, 6, 10).fit;
}

Affine fit_symmetric(const Samples<kBlock>& samples, Levels levels) {
  if (samples.negligible()) return {};
  return search_halves(samples, {fit_scale(samples, levels), 0.0f}, levels, 1, 1).fit;
}

Affine fit_with_offset(const Samples<kBlock>& samples, Levels levels) {
  const Affine ideal = fit_affine(samples, levels, std::numeric_limits<float>::infinity());
  const HalfBits middle = nearest_half(ideal.offset);
  ScoredFit best;
  for (const int step : {0, -1, 1}) {  // neighbours in magnitude; stepping off either end changes nothing
    const int magnitude = std::clamp<int>((middle & 0x7fff) + step, 0, kLargestHalfBits);
    const float offset = half_to_float(static_cast<HalfBits>((middle & 0x8000) | magnitude));
    best.keep_better(search_halves(samples, {ideal.scale, offset}, levels, 1, 1));
  }
  return best.fit;
}

using StoredLevels = std::array<uint8_t, kBlock>;

void pack_nibbles(const StoredLevels& levels, uint8_t (&quants)[kBlock / 2]) {
  for (int e = 0; e < kBlock / 2; ++e) {
    quants[e] = static_cast<uint8_t>((levels[e] & 15) | ((levels[e + kBlock / 2] & 15) << 4));
  }
}

void pack_fifth_bits(const StoredLevels& levels, uint8_t (&high)[4]) {
  for (int e = 0; e < kBlock; ++e) high[e / 8] = static_cast<uint8_t>(high[e / 8] | ((levels[e] >> 4) << (e % 8)));
}

// Calls encode(samples) -> Block for each block. `largest_level` bounds what a scale that is a half can reach.
template <typename Block, typename Encode>
void encode_blocks(const float* values, std::byte* blocks, size_t count, const float* importance, float largest_level,
                   Encode encode) {
  for (size_t i = 0; i < count / kBlock; ++i) {
    const Weights weights(importance == nullptr ? nullptr : importance + i * kBlock, kBlock);
    const auto samples = load_samples<kBlock>(values + i * kBlock, weights, 0, kLargestHalf * largest_level);
    store_block<Block>(blocks + i * sizeof(Block), encode(samples));
  }
}

}  // namespace

void quantise_q8_0(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockQ8_0>(values, blocks, count, importance, kLevels8.high, [](const Samples<kBlock>& samples) {
    const Affine fit = fit_8_bits(samples);
    const StoredLevels levels = stored_levels(samples, fit, kLevels8);
    BlockQ8_0 block = {.d = nearest_half(fit.scale), .quants = {}};
    for (int e = 0; e < kBlock; ++e) block.quants[e] = static_cast<int8_t>(levels[e] - 127);
    return block;
  });
}

void quantise_q4_0(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockQ4_0>(values, blocks, count, importance, kLevels4.high, [](const Samples<kBlock>& samples) {
    const Affine fit = fit_symmetric(samples, kLevels4);
    BlockQ4_0 block = {.d = nearest_half(fit.scale), .quants = {}};
    pack_nibbles(stored_levels(samples, fit, kLevels4), block.quants);
    return block;
  });
}

void quantise_q4_1(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockQ4_1>(values, blocks, count, importance, 1.0f, [](const Samples<kBlock>& samples) {
    const Affine fit = fit_with_offset(samples, kUnsigned4);
    BlockQ4_1 block = {.d = nearest_half(fit.scale), .m = nearest_half(fit.offset), .quants = {}};
    pack_nibbles(stored_levels(samples, fit, kUnsigned4), block.quants);
    return block;
  });
}

void quantise_q5_0(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockQ5_0>(values, blocks, count, importance, kLevels5.high, [](const Samples<kBlock>& samples) {
    const Affine fit = fit_symmetric(samples, kLevels5);
    const StoredLevels levels = stored_levels(samples, fit, kLevels5);
    BlockQ5_0 block = {.d = nearest_half(fit.scale), .high = {}, .quants = {}};
    pack_nibbles(levels, block.quants);
    pack_fifth_bits(levels, block.high);
    return block;
  });
}

void quantise_q5_1(const float* values, std::byte* blocks, size_t count, const float* importance) {
  encode_blocks<BlockQ5_1>(values, blocks, count, importance, 1.0f, [](const Samples<kBlock>& samples) {
    const Affine fit = fit_with_offset(samples, kUnsigned5);
    const StoredLevels levels = stored_levels(samples, fit, kUnsigned5);
    BlockQ5_1 block = {.d = nearest_half(fit.scale), .m = nearest_half(fit.offset), .high = {}, .quants = {}};
    pack_nibbles(levels, block.quants);
    pack_fifth_bits(levels, block.high);
    return block;
  });
}

}  // namespace carat::quant
