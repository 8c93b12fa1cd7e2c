// Quantisation to Q6_K: value = d * scale * q, with a signed 8-bit scale per sub-block of 16 and one half d for all
// sixteen (scaled_super_block.h).

#include <array>
#include <cstdint>

#include "quant/blocks.h"
#include "quant/codecs.h"
#include "quant/scaled_super_block.h"

namespace carat::quant {
namespace {

using Search = ScaledSuperBlock<-32, -128>;
constexpr float kAim = 120.0f, kReach = 0.06f;
constexpr int kSubBlock = Search::kSubBlock;

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
    const auto samples = Search::load(values + i * kSuperBlock, block_importance);
    const Search::Choice first = Search::first_choice(samples, kAim, kReach);
    const Search::Choice second = Search::refit(first, samples);
    const Search::Choice& choice = second.error < first.error ? second : first;
    BlockQ6_K block = {};
    block.d = nearest_half(choice.d);
    for (int k = 0; k < Search::kSubBlocks; ++k) {
      block.scales[k] = static_cast<int8_t>(choice.scales[k]);
      pack_levels(block, k, stored_levels(samples[k], choice.sub_block_fit(k), Search::kLevels));
    }
    store_block(blocks + i * sizeof(block), block);
  }
}

}  // namespace carat::quant
