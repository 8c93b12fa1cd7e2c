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

size_t row_bytes(uint32_t hd, quant::Format format) { return quant::info(format).row_bytes(hd); }

}  // namespace

KvCache::KvCache(const model::Config& config, const model::KvGeometry& geometry, uint32_t sequences,
                 quant::Format format, uint32_t layers)
    : geometry_(&geometry), format_(format), layers_(config.L) {
  check_format(config, format);
  uint64_t needed = 0;
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv || layer.index >= layers) continue;
    needed += 2 * geometry.rows(layer.index, sequences) * row_bytes(layer.hd, format);
  }
  check_host_memory(needed, fmt::format("the cache of {} sequences of {} positions", sequences, geometry.context()),
                    "a smaller context (-c) or fewer sequences help");
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv || layer.index >= layers) continue;
    LayerCache& cache = layers_[layer.index];
    cache.row_bytes = row_bytes(layer.hd, format);
    const size_t size = geometry.rows(layer.index, sequences) * cache.row_bytes;
    cache.keys = AlignedBuffer<std::byte>(size);
    cache.values = AlignedBuffer<std::byte>(size);
    bytes_ += 2 * size;
  }
}

KvCache::Span KvCache::span(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t begin, uint32_t end) const {
  const LayerCache& cache = layers_[layer];
  Span span;
  span.split = geometry_->contiguous_end(layer, begin, end);
  CARAT_CHECK(span.split == end || geometry_->contiguous_end(layer, span.split, end) == end);
  const size_t first = offset(layer, sequence, head, begin);
  const size_t second = span.split < end ? offset(layer, sequence, head, span.split) : first;
  span.keys = {cache.keys.data() + first, cache.keys.data() + second};
  span.values = {cache.values.data() + first, cache.values.data() + second};
  return span;
}

}  // namespace carat::exec::cpu
