#include "engine/drafts/ngram_index.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace carat::engine {

namespace {

constexpr uint32_t kMostSteps = 16;
constexpr size_t kSmallestTable = 256;

// Takes in the tokens of an n-gram from the last to the first, so that a longer one goes on from a shorter one.
uint64_t add_to_hash(uint64_t hash, text::TokenId token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

uint64_t hash_of(std::span<const text::TokenId> ngram) {
  uint64_t hash = 0;
  for (size_t i = ngram.size(); i-- > 0;) hash = add_to_hash(hash, ngram[i]);
  return hash;
}

}  // namespace

NgramIndex::NgramIndex(uint32_t shortest, uint32_t longest) : shortest_(shortest) {
  CARAT_CHECK(shortest >= 1 && shortest <= longest);
  for (uint32_t n = shortest; n <= longest; ++n) tables_.emplace_back(n);
}

size_t NgramIndex::Table::home(uint64_t hash) const {
  return static_cast<size_t>(hash * 0xD6E8FEB86659FD93u >> shift_);
}

void NgramIndex::Table::reserve(std::span<const text::TokenId> text, size_t ngrams) {
  if (ngrams * 2 <= ends_.size()) return;
  const size_t size = std::bit_ceil(std::max(kSmallestTable, ngrams * 2));
  std::vector<uint32_t> old(size, 0);
  old.swap(ends_);
  shift_ = 64 - std::countr_zero(size);
  for (const uint32_t end : old) {
    if (end != 0) exchange(text, hash_of(text.subspan(end - n_, n_)), end);
  }
}

uint32_t NgramIndex::Table::exchange(std::span<const text::TokenId> text, uint64_t hash, uint32_t end) {
  const size_t mask = ends_.size() - 1;
  size_t slot = home(hash);
  for (uint32_t step = 0; step < kMostSteps; ++step, slot = (slot + 1) & mask) {
    const uint32_t earlier = ends_[slot];
    if (earlier != 0 && !std::equal(text.begin() + (earlier - n_), text.begin() + earlier, text.begin() + (end - n_))) {
      continue;
    }
    ends_[slot] = end;
    return earlier;
  }
  ends_[home(hash)] = end;
  return 0;
}

void NgramIndex::extend(std::span<const text::TokenId> text) {
  CARAT_CHECK(text.size() >= indexed_ && text.size() < UINT32_MAX);
  if (text.size() == indexed_) return;
  for (Table& table : tables_) table.reserve(text, text.size());
  while (indexed_ < text.size()) append(text, ++indexed_);
}

void NgramIndex::append(std::span<const text::TokenId> text, uint32_t end) {
  match_.reset();
  uint64_t hash = 0;
  for (uint32_t n = 1; n <= end && n < shortest_ + tables_.size(); ++n) {
    hash = add_to_hash(hash, text[end - n]);
    if (n < shortest_) continue;
    const uint32_t earlier = tables_[n - shortest_].exchange(text, hash, end);
    if (earlier != 0) match_ = Match{n, earlier};
  }
}

void draft_from(std::span<const text::TokenId> text, const NgramIndex::Match& match, uint32_t count,
                std::vector<text::TokenId>& draft) {
  draft.clear();
  const size_t known = std::min<size_t>(count, text.size() - match.end);
  draft.insert(draft.end(), text.begin() + match.end, text.begin() + static_cast<ptrdiff_t>(match.end + known));
  for (size_t i = known; i < count; ++i) draft.push_back(draft[i - (text.size() - match.end)]);
}

}  // namespace carat::engine
