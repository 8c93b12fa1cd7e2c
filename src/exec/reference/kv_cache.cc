#include "exec/reference/kv_cache.h"

#include <fmt/format.h>

#include "exec/host_memory.h"

namespace carat::exec::reference {

KvCache::KvCache(const model::Config& config, const model::KvGeometry& geometry, uint32_t sequences)
    : geometry_(geometry), layers_(config.L) {
  check_host_memory(geometry.bytes(double{sizeof(float)} * sequences),
                    fmt::format("the cache of {} sequences of {} positions", sequences, geometry.context()),
                    "a smaller context (-c) helps");
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv) continue;
    LayerCache& cache = layers_[layer.index];
    cache.hd = layer.hd;
    const size_t values = geometry.rows(layer.index, sequences) * layer.hd;
    cache.keys.resize(values);
    cache.values.resize(values);
  }
}

}  // namespace carat::exec::reference
