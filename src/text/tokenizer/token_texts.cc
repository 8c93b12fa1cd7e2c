#include "text/tokenizer/token_texts.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace carat::text {

namespace {

uint64_t mix(uint64_t value) {
  value ^= value >> 32;
  value *= 0x9e3779b97f4a7c15u;
  value ^= value >> 29;
  value *= 0xbf58476d1ce4e5b9u;
  return value ^ (value >> 32);
}

}  // namespace

uint64_t TokenTexts::hash(std::string_view text) {
  uint64_t state = text.size();
  while (text.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, text.data(), 8);
    state = mix(state ^ word);
    text.remove_prefix(8);
  }
  uint64_t rest = 0;
  for (size_t i = 0; i < text.size(); ++i) rest |= uint64_t{static_cast<uint8_t>(text[i])} << (8 * i);
  return mix(state ^ rest);
}

void TokenTexts::reserve(size_t count, size_t bytes) {
  bytes_.reserve(bytes);
  ends_.reserve(count);
  rehash(std::bit_ceil(std::max<size_t>(2 * count, 2)));
}

void TokenTexts::add(std::string_view text) {
  bytes_ += text;
  ends_.push_back(bytes_.size());
  if (2 * size() > slots_.size()) {
    rehash(2 * slots_.size());
  } else {
    insert(static_cast<TokenId>(size() - 1));
  }
}

std::optional<TokenId> TokenTexts::find(std::string_view text, uint64_t hash) const {
  for (uint64_t at = hash & mask_; slots_[at].id >= 0; at = (at + 1) & mask_) {
    if (slots_[at].tag == tag_of(hash) && (*this)[slots_[at].id] == text) return slots_[at].id;
  }
  return std::nullopt;
}

void TokenTexts::rehash(size_t slots) {
  slots_.assign(slots, Slot{});
  mask_ = slots - 1;
  for (size_t id = 0; id < size(); ++id) insert(static_cast<TokenId>(id));
}

void TokenTexts::insert(TokenId id) {
  const std::string_view text = (*this)[id];
  if (text.empty()) return;
  const uint64_t h = hash(text);
  uint64_t at = h & mask_;
  while (slots_[at].id >= 0) {
    if (slots_[at].tag == tag_of(h) && (*this)[slots_[at].id] == text) return;  // the lower id stays
    at = (at + 1) & mask_;
  }
  slots_[at] = {tag_of(h), id};
}

}  // namespace carat::text
