#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace carat::text::grammar {

// A set of numbers that is emptied very often: emptying it costs nothing, whatever its size was.
class SeenSet {
 public:
  // False when it is there already.
  bool insert(uint64_t key) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    if (!place(key)) return false;
    ++count_;
    return true;
  }
  void clear() {
    count_ = 0;
    if (++round_ == 0) {  // after 2^32 rounds old entries would look new
      slots_.assign(slots_.size(), Slot{});
      round_ = 1;
    }
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t round = 0;
  };

  bool place(uint64_t key) {
    const size_t mask = slots_.size() - 1;
    const uint64_t mixed = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
    for (size_t at = static_cast<size_t>(mixed >> 32) & mask;; at = (at + 1) & mask) {
      if (slots_[at].round != round_) {
        slots_[at] = {key, round_};
        return true;
      }
      if (slots_[at].key == key) return false;
    }
  }
  void grow() {
    const std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.size() * 2, Slot{});
    for (const Slot& slot : old) {
      if (slot.round == round_) place(slot.key);
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  size_t count_ = 0;
  uint32_t round_ = 1;
};

}  // namespace carat::text::grammar
