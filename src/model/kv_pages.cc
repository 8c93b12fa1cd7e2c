#include "model/kv_pages.h"

#include <algorithm>

#include "base/error.h"

namespace carat::model {

KvPages::KvPages(const Config& config, uint32_t context, uint32_t chunk, uint32_t positions)
    : positions_(positions), context_(context), window_(config.W), layers_(config.L) {
  CARAT_CHECK(context > 0 && context <= kMaxPositions && chunk > 0 && positions > 0);
  entries_.global = pages(context);
  // The first row of a pass needs W - 1 positions before it while the last one is written: so many consecutive
  // positions lie in one page more than would hold them if they began with a page.
  const uint64_t reach = uint64_t{config.W} - 1 + chunk;
  entries_.sliding =
      static_cast<uint32_t>(std::min<uint64_t>(entries_.global, (reach + positions - 2) / positions + 1));
  for (const Layer& layer : config.layers) {
    if (!layer.owns_kv) continue;
    layers_[layer.index] = {true, layer.sliding ? PageKind::kSliding : PageKind::kGlobal, layer.Hkv, layer.hd};
  }
}

uint32_t KvPages::window_pages() const {
  return std::min<uint32_t>(entries_.global, (window_ - 1 + positions_ - 2) / positions_ + 1);
}

uint64_t KvPages::values_per_page(PageKind kind, uint32_t layers) const {
  uint64_t values = 0;
  for (uint32_t i = 0; i < std::min<size_t>(layers, layers_.size()); ++i) {
    const LayerPages& layer = layers_[i];
    if (layer.owns && layer.kind == kind) values += uint64_t{2} * layer.Hkv * positions_ * layer.hd;
  }
  return values;
}

}  // namespace carat::model
