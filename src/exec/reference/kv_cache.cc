#include "exec/reference/kv_cache.h"

#include <new>
#include <stdexcept>

#include "base/checked.h"
#include "base/error.h"

namespace carat::exec::reference {

KvCache::KvCache(const model::Config& config, const model::KvLayout& layout, uint32_t sequences)
    : layout_(layout), layers_(config.L) {
  const auto fail_memory = [&] {
    fail(
        ErrorCode::kOutOfMemory,
        "the cache of {} sequences of {} positions needs {} MiB each, more than there is: a smaller context (-c) helps",
        sequences, layout.context(), layout.bytes(sizeof(float)) >> 20);
  };
  try {
    for (const model::Layer& layer : config.layers) {
      if (!layer.owns_kv) continue;
      LayerCache& cache = layers_[layer.index];
      cache.width = size_t{layer.Hkv} * layer.hd;
      const auto slots = checked_mul<size_t>(sequences, layout.slots(layer.index));
      const auto values = slots ? checked_mul<size_t>(*slots, cache.width) : std::nullopt;
      if (!values) fail_memory();
      cache.keys.resize(*values);
      cache.values.resize(*values);
    }
  } catch (const std::bad_alloc&) {
    fail_memory();
  } catch (const std::length_error&) {
    fail_memory();
  }
}

}  // namespace carat::exec::reference
