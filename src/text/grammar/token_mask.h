#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer/token_texts.h"

namespace carat::text::grammar {

// A set of tokens, one bit each.
class TokenMask {
 public:
  explicit TokenMask(size_t size = 0) : words_((size + 63) / 64), size_(size) {}

  size_t size() const { return size_; }  // tokens of the vocabulary
  // False for ids that do not exist.
  bool allows(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < size_ && (words_[static_cast<size_t>(id) >> 6] >> (id & 63) & 1) != 0;
  }
  void set(TokenId id) { words_[static_cast<size_t>(id) >> 6] |= uint64_t{1} << (id & 63); }
  void clear(TokenId id) { words_[static_cast<size_t>(id) >> 6] &= ~(uint64_t{1} << (id & 63)); }
  void add(const TokenMask& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }

  size_t count() const {
    size_t bits = 0;
    for (const uint64_t word : words_) bits += static_cast<size_t>(std::popcount(word));
    return bits;
  }
  bool empty() const {
    for (const uint64_t word : words_) {
      if (word != 0) return false;
    }
    return true;
  }
  std::span<const uint64_t> words() const { return words_; }

  // Calls `visit(TokenId)` for each token of the set in ascending order; the cost is one step per word and per token.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(static_cast<TokenId>(i * 64 + static_cast<size_t>(std::countr_zero(word))));
      }
    }
  }

  bool operator==(const TokenMask&) const = default;

 private:
  std::vector<uint64_t> words_;
  size_t size_;
};

}  // namespace carat::text::grammar
