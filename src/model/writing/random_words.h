#pragma once

// Private to random_blocks.cc and random_late_blocks.cc: the random words blocks are made of.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/blocks.h"

namespace carat::model {

// Folds the 128-bit product of two 64-bit numbers: one multiplication mixes all bits well.
inline uint64_t folded_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Random words by counting: word n of a key needs no state but n.
class Words {
 public:
  Words(uint64_t key, uint64_t first) : state_(key + first * kStep) {}
  uint64_t next() {
    state_ += kStep;
    return folded_product(state_, state_ ^ kTwist);
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // odd, so the counter visits every state
  static constexpr uint64_t kTwist = 0xd1b54a32d192ed03u;
  uint64_t state_;
};

constexpr uint64_t repeat_byte(uint64_t byte) { return byte * 0x0101010101010101u; }

template <size_t kBytes, typename Make>
void fill_bytes(uint8_t (&bytes)[kBytes], Words& words, Make make) {
  static_assert(kBytes % sizeof(uint64_t) == 0);
  for (size_t i = 0; i < kBytes; i += sizeof(uint64_t)) {
    const uint64_t word = make(words);
    std::memcpy(bytes + i, &word, sizeof word);
  }
}

template <size_t kBytes>
void fill_uniform(uint8_t (&bytes)[kBytes], Words& words) {
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= kBytes; i += sizeof(uint64_t)) {
    const uint64_t word = words.next();
    std::memcpy(bytes + i, &word, sizeof word);
  }
  if (i < kBytes) {
    const uint64_t word = words.next();
    std::memcpy(bytes + i, &word, kBytes - i);
  }
}

// Makes blocks one after another; each starts at its own fixed word, so block n is the same wherever a run begins.
template <typename Block, typename Make>
void fill_blocks(uint64_t key, uint64_t first, uint64_t count, std::byte* out, Make make) {
  // No generator below takes more words than this.
  constexpr uint64_t kWordsPerBlock = 64;
  for (uint64_t n = 0; n < count; ++n) {
    Words words(key, (first + n) * kWordsPerBlock);
    Block block;
    make(block, words);
    quant::store_block(out + n * sizeof(Block), block);
  }
}

}  // namespace carat::model
