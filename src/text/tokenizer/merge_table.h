#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/tokenizer/token_texts.h"

namespace carat::text {

// The merges of a vocabulary: (left, right) -> rank and result. One 64-bit word per slot, because nearly every lookup
// during encoding is a miss of the nearest cache and eight bytes a slot halve the memory it has to come from.
class MergeTable {
 public:
  static constexpr size_t kMaxTokens = size_t{1} << 21;
  static constexpr size_t kMaxMerges = (size_t{1} << 22) - 1;  // the last rank marks an empty slot
  static constexpr uint32_t kNone = UINT32_MAX;

  // Space for exactly `count` merges (at most kMaxMerges).
  explicit MergeTable(size_t count = 0);

  // The next rank. Token ids are below kMaxTokens. A pair that is already there keeps its lower rank.
  void add(TokenId left, TokenId right, TokenId result);
  size_t size() const { return results_.size(); }
  // For a loop over many merges: fetches the memory that add() or rank() will touch.
  void prefetch(TokenId left, TokenId right) const { __builtin_prefetch(&slots_[home(key_of(left, right))]); }

  // kNone when the two never merge.
  uint32_t rank(TokenId left, TokenId right) const {
    const uint64_t key = key_of(left, right);
    for (uint64_t at = home(key);; at = (at + 1) & mask_) {
      const uint64_t slot = slots_[at];
      if (slot >> kRankBits == key && slot != kEmpty) return static_cast<uint32_t>(slot & kRankMask);
      if (slot == kEmpty) return kNone;
    }
  }
  TokenId result(uint32_t rank) const { return results_[rank]; }

 private:
  static constexpr int kIdBits = 21;
  static constexpr int kRankBits = 22;
  static constexpr uint64_t kRankMask = (uint64_t{1} << kRankBits) - 1;
  static constexpr uint64_t kEmpty = UINT64_MAX;

  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(left) << kIdBits | static_cast<uint64_t>(right);
  }
  uint64_t home(uint64_t key) const { return key * 0x9e3779b97f4a7c15u >> shift_; }

  std::vector<uint64_t> slots_;
  std::vector<TokenId> results_;
  uint64_t mask_ = 0;
  int shift_ = 63;
};

// Which pairs of neighbouring code points some merge could ever join across. Where none can, a text may be cut before
// merging without changing the result: symbols on both sides never meet. A filter of one bit per hash value: it may
// claim that a pair joins when it does not, which costs time, never the reverse, which would cost correctness.
class BorderFilter {
 public:
  explicit BorderFilter(size_t merges = 0);

  // Both are the tokens of single code points.
  void add(TokenId left, TokenId right) {
    const uint64_t bit = bit_of(left, right);
    words_[bit >> 6] |= uint64_t{1} << (bit & 63);
  }
  bool may_join(TokenId left, TokenId right) const {
    const uint64_t bit = bit_of(left, right);
    return (words_[bit >> 6] >> (bit & 63) & 1) != 0;
  }

 private:
  uint64_t bit_of(TokenId left, TokenId right) const {
    const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    return key * 0x9e3779b97f4a7c15u >> shift_;
  }

  std::vector<uint64_t> words_;
  int shift_ = 0;
};

}  // namespace carat::text
