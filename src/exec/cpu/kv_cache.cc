#include "exec/cpu/kv_cache.h"

#include <fmt/format.h>

#include "base/error.h"
#include "exec/host_memory.h"

namespace carat::exec::cpu {

KvCache::KvCache(const model::Config& config, const model::KvLayout& layout, uint32_t sequences, quant::Format format,
                 uint32_t layers)
    : layout_(&layout), halves_(format == quant::Format::kF16), layers_(config.L) {
  if (format != quant::Format::kF16 && format != quant::Format::kF32) {
    fail(ErrorCode::kUnsupported,
         "the CPU executor keeps keys and values as F16 or F32, not as {}: choose one of these",
         quant::info(format).name);
  }
  const size_t element = halves_ ? 2 : 4;
  uint64_t needed = 0;
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv || layer.index >= layers) continue;
    needed += uint64_t{2} * sequences * layer.Hkv * layout.slots(layer.index) * layer.hd * element;
  }
  check_host_memory(needed, fmt::format("the cache of {} sequences of {} positions", sequences, layout.context()),
                    "a smaller context (-c) or fewer sequences help");
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv || layer.index >= layers) continue;
    LayerCache& cache = layers_[layer.index];
    cache.Hkv = layer.Hkv;
    cache.vector_bytes = layer.hd * element;
    const size_t size = size_t{sequences} * layer.Hkv * layout.slots(layer.index) * cache.vector_bytes;
    cache.keys = AlignedBuffer<std::byte>(size);
    cache.values = AlignedBuffer<std::byte>(size);
    bytes_ += 2 * size;
  }
}

}  // namespace carat::exec::cpu
