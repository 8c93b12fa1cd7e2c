#include "exec/reference/kv_cache.h"

#include <algorithm>

namespace carat::exec::reference {

KvCache::KvCache(const model::Config& config, const model::KvPages& geometry, const PagedSequences& sequences)
    : geometry_(geometry), sequences_(sequences), layers_(config.L) {
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv) continue;
    LayerCache& cache = layers_[layer.index];
    cache.hd = layer.hd;
    const size_t values = geometry.rows(layer.index, sequences.total()) * layer.hd;
    cache.keys.resize(values);
    cache.values.resize(values);
  }
}

void KvCache::copy(std::span<const PageCopy> copies) {
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    LayerCache& cache = layers_[layer];
    if (cache.hd == 0) continue;
    const size_t values = geometry_.rows_per_page(layer) * cache.hd;
    for (const PageCopy& copy : copies) {
      if (copy.kind != geometry_.kind(layer)) continue;
      for (std::vector<float>* plane : {&cache.keys, &cache.values}) {
        std::copy_n(plane->begin() + copy.from * values, values, plane->begin() + copy.to * values);
      }
    }
  }
}

}  // namespace carat::exec::reference
