// Quantisation to Q4_K and Q5_K: value = d * scale * q - dmin * min, with 6-bit scale and min per sub-block of 32 and
// halves d and dmin for all eight (affine_super_block.h).

#include <array>
#include <cstdint>

#include "quant/affine_super_block.h"
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace carat::quant {
namespace {

constexpr int kSubBlock = 32;
using Search = AffineSuperBlock<kSubBlock, 63, 1>;

void pack_scales_and_mins(const Search::Choice& choice, uint8_t (&packed)[12]) {
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
    const auto samples = Search::load(values + i * kSuperBlock, block_importance);
    const Search::Choice choice = Search::choose(samples, levels);
    Block block = {};
    block.d = nearest_half(choice.d);
    block.dmin = nearest_half(choice.dmin);
    pack_scales_and_mins(choice, block.scales);
    for (int j = 0; j < Search::kSubBlocks; ++j) {
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
