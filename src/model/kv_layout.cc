#include "model/kv_layout.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace carat::model {

KvLayout::KvLayout(const Config& config, uint32_t context, uint32_t chunk)
    : context_(context), chunk_(chunk), window_(config.W), slots_(config.L, 0) {
  CARAT_CHECK(context > 0 && chunk > 0);
  // All keys of a chunk are written before its first row attends, and that row still needs the W - 1 positions before
  // it; so W - 1 + chunk slots are enough and one fewer is not.
  const uint64_t ring = uint64_t{config.W} - 1 + chunk;
  sliding_slots_ = static_cast<uint32_t>(std::min<uint64_t>(context, ring));
  for (const Layer& layer : config.layers) {
    if (!layer.owns_kv) continue;
    slots_[layer.index] = layer.sliding ? sliding_slots_ : context;
    const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.sliding == layer.sliding && g.Hkv == layer.Hkv && g.hd == layer.hd;
    });
    if (group != groups_.end()) {
      group->layers.push_back(layer.index);
    } else {
      groups_.push_back({layer.sliding, layer.Hkv, layer.hd, slots_[layer.index], {layer.index}});
    }
  }
}

uint64_t KvLayout::bytes(double bytes_per_value) const {
  double total = 0.0;
  for (const Group& group : groups_) {
    const uint64_t values = group.values_per_slot() * group.layers.size();
    total += static_cast<double>(values) * group.slots * bytes_per_value;
  }
  // An absurd context stays an absurd number of bytes instead of wrapping around.
  return static_cast<uint64_t>(std::min(std::ceil(total), 0x1p63));
}

bool KvLayout::can_resume(uint32_t n, uint32_t written) const {
  if (n > written) return false;
  // A row at n attends to the window's positions before it; position p of a ring was overwritten when p + slots was
  // written. Global layers keep everything.
  const uint32_t first_needed = n >= window_ ? n - window_ + 1 : 0;
  const bool needs_history = first_needed < n;
  return !needs_history || uint64_t{first_needed} + sliding_slots_ >= written;
}

}  // namespace carat::model
