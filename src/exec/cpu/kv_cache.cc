#include "exec/cpu/kv_cache.h"

#include <fmt/format.h>

#include "base/error.h"
#include "exec/host_memory.h"

namespace carat::exec::cpu {
namespace {

void check_format(const model::Config& config, quant::Format format) {
  const bool quantised = format == quant::Format::kQ8_0;
  if (format != quant::Format::kF16 && format != quant::Format::kF32 && !quantised) {
    fail(ErrorCode::kUnsupported,
         "the CPU executor keeps keys and values as F16, F32 or Q8_0, not as {}: choose one of these (-ctk, -ctv)",
         quant::info(format).name);
  }
  for (const model::Layer& layer : config.layers) {
    if (quantised && layer.hd % quant::info(format).block != 0) {
      fail(ErrorCode::kUnsupported,
           "blk.{}: keys and values of head size {} cannot be kept as Q8_0, which needs a multiple of {}; use F16 "
           "(-ctk, -ctv)",
           layer.index, layer.hd, quant::info(format).block);
    }
  }
}

size_t vector_bytes(uint32_t hd, quant::Format format) { return quant::info(format).row_bytes(hd); }

}  // namespace

KvCache::KvCache(const model::Config& config, const model::KvLayout& layout, uint32_t sequences, quant::Format format,
                 uint32_t layers)
    : layout_(&layout), format_(format), layers_(config.L) {
  check_format(config, format);
  uint64_t needed = 0;
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv || layer.index >= layers) continue;
    needed += uint64_t{2} * sequences * layer.Hkv * layout.slots(layer.index) * vector_bytes(layer.hd, format);
  }
  check_host_memory(needed, fmt::format("the cache of {} sequences of {} positions", sequences, layout.context()),
                    "a smaller context (-c) or fewer sequences help");
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv || layer.index >= layers) continue;
    LayerCache& cache = layers_[layer.index];
    cache.Hkv = layer.Hkv;
    cache.vector_bytes = vector_bytes(layer.hd, format);
    const size_t size = size_t{sequences} * layer.Hkv * layout.slots(layer.index) * cache.vector_bytes;
    cache.keys = AlignedBuffer<std::byte>(size);
    cache.values = AlignedBuffer<std::byte>(size);
    bytes_ += 2 * size;
  }
}

}  // namespace carat::exec::cpu
