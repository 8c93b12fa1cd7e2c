#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace carat::text::grammar {

// Lists of plain values, each kept once and known by its number; the empty list is number 0.
template <typename T>
class InternedLists {
  static_assert(std::has_unique_object_representations_v<T>, "compared and hashed by its bytes");

 public:
  InternedLists() { intern({}); }

  // `list` must not lie within this table.
  uint32_t intern(std::span<const T> list) {
    if (2 * ends_.size() >= slots_.size()) grow();
    for (size_t slot = hash(list) & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot] == kFree) {
        slots_[slot] = static_cast<uint32_t>(ends_.size());
        values_.insert(values_.end(), list.begin(), list.end());
        ends_.push_back(values_.size());
        return slots_[slot];
      }
      if (equal((*this)[slots_[slot]], list)) return slots_[slot];
    }
  }

  // Valid until the next list is added.
  std::span<const T> operator[](uint32_t id) const {
    const size_t begin = id == 0 ? 0 : ends_[id - 1];
    return {values_.data() + begin, ends_[id] - begin};
  }
  size_t size() const { return ends_.size(); }
  size_t bytes() const {
    return values_.capacity() * sizeof(T) + ends_.capacity() * sizeof(size_t) + slots_.size() * 4;
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;

  static bool equal(std::span<const T> a, std::span<const T> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
  }
  static size_t hash(std::span<const T> list) {
    uint64_t state = list.size();
    for (const T& value : list) {
      uint32_t words[sizeof(T) / 4];
      std::memcpy(words, &value, sizeof(T));
      for (const uint32_t word : words) {
        state = (state ^ word) * 0x9e3779b97f4a7c15u;
        state ^= state >> 29;
      }
    }
    return static_cast<size_t>(state ^ state >> 32);
  }
  void grow() {
    slots_.assign(slots_.size() * 2, kFree);
    for (uint32_t id = 0; id < ends_.size(); ++id) {
      size_t slot = hash((*this)[id]) & (slots_.size() - 1);
      while (slots_[slot] != kFree) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = id;
    }
  }

  std::vector<T> values_;
  std::vector<size_t> ends_;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(64, kFree);
};

}  // namespace carat::text::grammar
