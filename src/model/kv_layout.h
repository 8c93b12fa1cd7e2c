#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace carat::model {

// Where each owner layer keeps the keys and values of one sequence. Global layers have a slot for every position,
// sliding layers a ring of window + chunk positions, layers that share a cache none (decision 6 of the architecture).
class KvLayout {
 public:
  struct Group {  // owner layers with the same shape
    bool sliding;
    uint32_t Hkv, hd;
    uint32_t slots;  // positions kept per sequence
    std::vector<uint32_t> layers;
    uint64_t values_per_slot() const { return uint64_t{2} * Hkv * hd; }  // K and V of one layer
  };

  // chunk: the most rows of one sequence in one forward pass.
  KvLayout(const Config& config, uint32_t context, uint32_t chunk);

  uint32_t context() const { return context_; }
  uint32_t chunk() const { return chunk_; }
  const std::vector<Group>& groups() const { return groups_; }
  // Slots of an owner layer, and the slot of a position in it.
  uint32_t slots(uint32_t layer) const { return slots_[layer]; }
  uint32_t slot(uint32_t layer, uint32_t position) const { return position % slots_[layer]; }
  // Bytes for one sequence when an element takes bytes_per_value (2 for F16; 1.0625 for Q8_0).
  uint64_t bytes(double bytes_per_value) const;

  // Can a sequence whose cache was written up to position `written` go on from position n <= written? False when some
  // key the window of position n needs was overwritten in a ring.
  bool can_resume(uint32_t n, uint32_t written) const;

 private:
  uint32_t context_;
  uint32_t chunk_;
  uint32_t window_;
  uint32_t sliding_slots_ = 0;
  std::vector<uint32_t> slots_;  // [L], 0 for layers without a cache of their own
  std::vector<Group> groups_;
};

}  // namespace carat::model
