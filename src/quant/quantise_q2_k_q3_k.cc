// Quantisation to Q2_K and Q3_K: as Q4_K (affine_super_block.h) and Q6_K (scaled_super_block.h) with fewer bits, where
// a stored scale is coarse, so more of them are tried.

#include <array>
#include <cstdint>

#include "quant/affine_super_block.h"
#include "quant/blocks.h"
#include "quant/codecs.h"
#include "quant/scaled_super_block.h"

namespace carat::quant {
namespace {

using Q2Search = AffineSuperBlock<16, 15, 2>;
using Q3Search = ScaledSuperBlock<-4, -32>;
constexpr Levels kQ2Levels = {0.0f, 3.0f};

// With four levels the peak is often best clipped, so scales far below the one that reaches it are tried, too, and the
// largest scale is aimed at several places of its range.
Q3Search::Choice choose_q3(const Q3Search::SuperBlockSamples& samples) {
  constexpr float kReach = 0.45f;
  Q3Search::Choice best;
  for (const float aim : {31.0f, 27.0f, 22.0f}) {
    Q3Search::Choice choice = Q3Search::first_choice(samples, aim, kReach);
    for (int round = 0; round < 3; ++round) {
      if (choice.error < best.error) best = choice;
      choice = Q3Search::refit(choice, samples);
    }
    if (choice.error < best.error) best = choice;
  }
  return best;
}

// Where the first fits put d and dmin, and where they would be if the sub-block with the largest scale, or min, used
// less than all of its range.
Q2Search::Choice choose_q2(const Q2Search::SuperBlockSamples& samples) {
  Q2Search::Choice best;
  for (const float stretch : {1.0f, 0.9f}) {
    Q2Search::Choice choice = Q2Search::first_choice(samples, kQ2Levels);
    choice.d = rounded_to_half(choice.d * stretch);
    for (int round = 0; round < 3; ++round) {
      Q2Search::settle(choice, samples, kQ2Levels);
      if (choice.error < best.error) best = choice;
      choice = Q2Search::refit(choice, samples, kQ2Levels);
    }
  }
  return best;
}

// Scale k's six bits: four in a nibble of the first eight bytes, two in the last four.
void pack_q3_scales(const Q3Search::Choice& choice, uint8_t (&packed)[12]) {
  for (int k = 0; k < Q3Search::kSubBlocks; ++k) {
    const int scale = choice.scales[k] + 32;
    packed[k % 8] = static_cast<uint8_t>(packed[k % 8] | (scale & 15) << (4 * (k / 8)));
    packed[8 + k % 4] = static_cast<uint8_t>(packed[8 + k % 4] | (scale >> 4) << (2 * (k / 4)));
  }
}

}  // namespace

void quantise_q2_k(const float* values, std::byte* blocks, size_t count, const float* importance) {
  for (size_t i = 0; i < count / kSuperBlock; ++i) {
    const float* block_importance = importance == nullptr ? nullptr : importance + i * kSuperBlock;
    const auto samples = Q2Search::load(values + i * kSuperBlock, block_importance);
    const Q2Search::Choice choice = choose_q2(samples);
    BlockQ2_K block = {};
    block.d = nearest_half(choice.d);
    block.dmin = nearest_half(choice.dmin);
    for (int k = 0; k < Q2Search::kSubBlocks; ++k) {  // where levels lie: dequantise_q2_k
      block.scales[k] = static_cast<uint8_t>(choice.scales[k] | choice.mins[k] << 4);
      uint8_t* quants = block.quants + 32 * (k / 8) + 16 * (k % 2);
      const auto levels = stored_levels(samples[k], choice.sub_block_fit(k), kQ2Levels);
      for (int l = 0; l < 16; ++l) quants[l] = static_cast<uint8_t>(quants[l] | levels[l] << (2 * ((k % 8) / 2)));
    }
    store_block(blocks + i * sizeof(block), block);
  }
}

void quantise_q3_k(const float* values, std::byte* blocks, size_t count, const float* importance) {
  for (size_t i = 0; i < count / kSuperBlock; ++i) {
    const float* block_importance = importance == nullptr ? nullptr : importance + i * kSuperBlock;
    const auto samples = Q3Search::load(values + i * kSuperBlock, block_importance);
    const Q3Search::Choice choice = choose_q3(samples);
    BlockQ3_K block = {};
    block.d = nearest_half(choice.d);
    pack_q3_scales(choice, block.scales);
    for (int k = 0; k < Q3Search::kSubBlocks; ++k) {
      uint8_t* quants = block.quants + 32 * (k / 8) + 16 * (k % 2);
      uint8_t* high = block.high + 16 * (k % 2);
      const auto levels = stored_levels(samples[k], choice.sub_block_fit(k), Q3Search::kLevels);
      for (int l = 0; l < 16; ++l) {
        quants[l] = static_cast<uint8_t>(quants[l] | (levels[l] & 3) << (2 * ((k % 8) / 2)));
        high[l] = static_cast<uint8_t>(high[l] | (levels[l] >> 2) << (k / 2));
      }
    }
    store_block(blocks + i * sizeof(block), block);
  }
}

}  // namespace carat::quant
