#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace carat::text {

using TokenId = int32_t;

// The texts of a vocabulary in one block of memory, numbered from 0, with a lookup by text. Of several tokens with the
// same text the lookup finds the one with the lowest id; the empty text is never found.
class TokenTexts {
 public:
  // Space for `count` texts of `bytes` bytes in all, so that adding them never allocates.
  void reserve(size_t count, size_t bytes);
  void add(std::string_view text);

  size_t size() const { return ends_.size(); }
  std::string_view operator[](TokenId id) const {
    const size_t begin = id == 0 ? 0 : ends_[static_cast<size_t>(id) - 1];
    return {bytes_.data() + begin, ends_[static_cast<size_t>(id)] - begin};
  }
  std::optional<TokenId> find(std::string_view text) const { return find(text, hash(text)); }

  // The two halves of find(): a loop over many texts computes the hashes of a batch, prefetches, and then looks up.
  static uint64_t hash(std::string_view text);
  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }
  std::optional<TokenId> find(std::string_view text, uint64_t hash) const;

 private:
  // Open addressing with linear probing, at most half full. The upper hash bits spare most text comparisons.
  struct Slot {
    uint32_t tag = 0;
    TokenId id = -1;
  };
  static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  void rehash(size_t slots);
  void insert(TokenId id);

  std::string bytes_;
  std::vector<size_t> ends_;
  std::vector<Slot> slots_ = std::vector<Slot>(2);
  uint64_t mask_ = 1;
};

}  // namespace carat::text
