#include "exec/reference/kv_cache.h"

#include <fmt/format.h>

#include "exec/host_memory.h"

namespace carat::exec::reference {

KvCache::KvCache(const model::Config& config, const model::KvLayout& layout, uint32_t sequences)
    : layout_(layout), layers_(config.L) {
  check_host_memory(layout.bytes(double{sizeof(float)} * sequences),
                    fmt::format("the cache of {} sequences of {} positions", sequences, layout.context()),
                    "a smaller context (-c) helps");
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv) continue;
    LayerCache& cache = layers_[layer.index];
    cache.width = size_t{layer.Hkv} * layer.hd;
    const size_t values = size_t{sequences} * layout.slots(layer.index) * cache.width;
    cache.keys.resize(values);
    cache.values.resize(values);
  }
}

}  // namespace carat::exec::reference
