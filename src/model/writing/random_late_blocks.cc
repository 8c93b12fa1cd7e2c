// Random blocks of the formats with codebooks, bits and base-3 digits.

#include <array>
#include <cstring>

#include "base/error.h"
#include "model/writing/random_blocks.h"
#include "model/writing/random_words.h"
#include "quant/blocks.h"

namespace carat::model {

using quant::Format;

void RandomBlocks::fill_codebook_blocks(uint64_t first, uint64_t count, std::byte* out) const {
  using namespace quant;
  // A scale for each block, and all else random: every code is valid.
  const auto fill = [&]<typename Block>(Block) {
    fill_blocks<Block>(key_, first, count, out, [&](Block& block, Words& words) {
      std::array<uint8_t, sizeof(Block)> bytes;
      const uint16_t d = scales_[words.next() >> 57];
      size_t i = 0;
      for (; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
        const uint64_t word = words.next();
        std::memcpy(bytes.data() + i, &word, sizeof word);
      }
      const uint64_t rest = words.next();
      std::memcpy(bytes.data() + i, &rest, bytes.size() - i);
      std::memcpy(&block, bytes.data(), sizeof block);
      if constexpr (requires { block.d; }) {
        block.d = d;
      } else {  // IQ1_M: a quarter of it in the top bits of each word of scales
        for (int k = 0; k < 4; ++k) {
          uint8_t& top = block.scales[2 * k + 1];
          top = static_cast<uint8_t>((top & 15) | ((d >> (4 * k)) & 15) << 4);
        }
      }
    });
  };
  switch (format_) {
    case Format::kIQ4_XS:
      return fill(BlockIQ4_XS{});
    case Format::kIQ3_S:
      return fill(BlockIQ3_S{});
    case Format::kIQ3_XXS:
      return fill(BlockIQ3_XXS{});
    case Format::kIQ2_S:
      return fill(BlockIQ2_S{});
    case Format::kIQ2_XS:
      return fill(BlockIQ2_XS{});
    case Format::kIQ2_XXS:
      return fill(BlockIQ2_XXS{});
    case Format::kIQ1_S:
      return fill(BlockIQ1_S{});
    case Format::kIQ1_M:
      return fill(BlockIQ1_M{});
    default:
      return fill_ternary_blocks(first, count, out);
  }
}

void RandomBlocks::fill_ternary_blocks(uint64_t first, uint64_t count, std::byte* out) const {
  using namespace quant;
  // Two bits that are 0, 1, 1 or 2: the third value above the middle is one no quantiser writes.
  const auto ternary = [](Words& words) {
    const uint64_t random = words.next();
    return (random & repeat_byte(0x55)) + ((random >> 1) & repeat_byte(0x55));
  };
  const auto fill = [&]<typename Block>(Block, auto make) {
    fill_blocks<Block>(key_, first, count, out, [&](Block& block, Words& words) {
      block.d = scales_[words.next() >> 57];
      make(block, words);
    });
  };
  switch (format_) {
    case Format::kTQ1_0:
      return fill(BlockTQ1_0{}, [](BlockTQ1_0& block, Words& words) {
        fill_uniform(block.quants, words);
        fill_uniform(block.high, words);
      });
    case Format::kTQ2_0:
      return fill(BlockTQ2_0{}, [&](BlockTQ2_0& block, Words& words) { fill_bytes(block.quants, words, ternary); });
    case Format::kQ1_0:
      return fill(BlockQ1_0{}, [](BlockQ1_0& block, Words& words) { fill_uniform(block.quants, words); });
    case Format::kQ2_0:
      return fill(BlockQ2_0{}, [&](BlockQ2_0& block, Words& words) { fill_bytes(block.quants, words, ternary); });
    default:
      CARAT_CHECK(false && "a format without a generator");
  }
}

}  // namespace carat::model
