#include "text/tokenizer/merge_table.h"

#include <algorithm>
#include <bit>

namespace carat::text {

MergeTable::MergeTable(size_t count) {
  const size_t slots = std::bit_ceil(std::max<size_t>(2 * count, 2));
  slots_.assign(slots, kEmpty);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  results_.reserve(count);
}

void MergeTable::add(TokenId left, TokenId right, TokenId result) {
  const uint64_t key = key_of(left, right);
  const uint64_t rank = results_.size();
  results_.push_back(result);
  uint64_t at = home(key);
  while (slots_[at] != kEmpty) {
    if (slots_[at] >> kRankBits == key) return;
    at = (at + 1) & mask_;
  }
  slots_[at] = key << kRankBits | rank;
}

BorderFilter::BorderFilter(size_t merges) {
  // Real vocabularies have one distinct border per fifteen merges, so two bits a merge leave the filter 97% empty.
  const size_t bits = std::bit_ceil(std::max<size_t>(2 * merges, 64));
  words_.assign(bits / 64, 0);
  shift_ = 64 - std::countr_zero(bits);
}

}  // namespace carat::text
