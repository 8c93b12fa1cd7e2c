#include "model/kv_geometry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace carat::model {
namespace {

uint32_t whole_tiles(uint64_t positions, uint32_t tile) {
  const uint64_t cells = (positions + tile - 1) / tile * tile;
  CARAT_CHECK(cells <= std::numeric_limits<uint32_t>::max());
  return static_cast<uint32_t>(cells);
}

}  // namespace

KvGeometry::KvGeometry(const Config& config, uint32_t context, uint32_t chunk, uint32_t tile)
    : context_(context), chunk_(chunk), window_(config.W), layers_(config.L) {
  CARAT_CHECK(context > 0 && chunk > 0 && tile > 0);
  // All keys of a chunk are written before its first row attends, and that row still needs the W - 1 positions before
  // it; so W - 1 + chunk cells are enough and one fewer is not.
  const uint64_t ring = uint64_t{config.W} - 1 + chunk;
  sliding_cells_ = whole_tiles(std::min<uint64_t>(context, ring), tile);
  const uint32_t global_cells = whole_tiles(context, tile);
  for (const Layer& layer : config.layers) {
    if (!layer.owns_kv) continue;
    const uint32_t cells = layer.sliding ? sliding_cells_ : global_cells;
    layers_[layer.index] = {cells, layer.Hkv};
    const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.sliding == layer.sliding && g.Hkv == layer.Hkv && g.hd == layer.hd;
    });
    if (group != groups_.end()) {
      group->layers.push_back(layer.index);
    } else {
      groups_.push_back({layer.sliding, layer.Hkv, layer.hd, cells, {layer.index}});
    }
  }
}

uint32_t KvGeometry::contiguous_end(uint32_t layer, uint32_t begin, uint32_t end) const {
  return std::min(end - begin, cells(layer) - cell(layer, begin)) + begin;
}

uint64_t KvGeometry::bytes(double bytes_per_value) const {
  double total = 0.0;
  for (const Group& group : groups_) {
    const uint64_t values = group.values_per_cell() * group.layers.size();
    total += static_cast<double>(values) * group.cells * bytes_per_value;
  }
  // An absurd context stays an absurd number of bytes instead of wrapping around.
  return static_cast<uint64_t>(std::min(std::ceil(total), 0x1p63));
}

bool KvGeometry::can_resume(uint32_t n, uint32_t written) const {
  if (n > written) return false;
  // A row at n attends to the window's positions before it; position p of a ring was overwritten when p + cells was
  // written. Global layers keep everything.
  const uint32_t first_needed = n >= window_ ? n - window_ + 1 : 0;
  const bool needs_history = first_needed < n;
  return !needs_history || uint64_t{first_needed} + sliding_cells_ >= written;
}

}  // namespace carat::model
