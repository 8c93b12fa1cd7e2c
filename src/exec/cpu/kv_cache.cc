#include "exec/cpu/kv_cache.h"

#include <fmt/format.h>

#include <cstring>

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

double KvCache::bytes_per_value(const model::Config& config, quant::Format format) {
  check_format(config, format);
  constexpr uint32_t kValues = 32;  // of a block
  return static_cast<double>(row_bytes(kValues, format)) / kValues;
}

KvCache::KvCache(const model::Config& config, const model::KvPages& geometry, const PagedSequences& sequences,
                 const ExecutorOptions& options, uint32_t layers)
    : geometry_(&geometry), sequences_(&sequences), format_(options.kv_format), layers_(config.L) {
  check_format(config, format_);
  uint64_t needed = 0;
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv || layer.index >= layers) continue;
    needed += 2 * geometry.rows(layer.index, sequences.total()) * row_bytes(layer.hd, format_);
  }
  check_host_memory(needed,
                    fmt::format("the cache of {} sequences of {} positions", options.sequences, geometry.context()),
                    "a smaller context (-c) or fewer sequences help");
  for (const model::Layer& layer : config.layers) {
    if (!layer.owns_kv || layer.index >= layers) continue;
    LayerCache& cache = layers_[layer.index];
    cache.row_bytes = row_bytes(layer.hd, format_);
    const size_t size = geometry.rows(layer.index, sequences.total()) * cache.row_bytes;
    cache.keys = AlignedBuffer<std::byte>(size);
    cache.values = AlignedBuffer<std::byte>(size);
    bytes_ += 2 * size;
  }
}

KvCache::Rows KvCache::rows(uint32_t layer, uint32_t sequence, uint32_t head) const {
  const LayerCache& cache = layers_[layer];
  const model::PageKind kind = geometry_->kind(layer);
  const size_t head_offset = size_t{head} * geometry_->positions() * cache.row_bytes;
  return {{.table = sequences_->table(kind, sequence),
           .entries = geometry_->entries(kind),
           .positions = geometry_->positions(),
           .page_bytes = geometry_->rows_per_page(layer) * cache.row_bytes},
          cache.keys.data() + head_offset,
          cache.values.data() + head_offset};
}

void KvCache::copy(std::span<const PageCopy> copies) {
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    LayerCache& cache = layers_[layer];
    if (cache.row_bytes == 0) continue;
    const size_t bytes = geometry_->rows_per_page(layer) * cache.row_bytes;
    for (const PageCopy& copy : copies) {
      if (copy.kind != geometry_->kind(layer)) continue;
      std::memcpy(cache.keys.data() + copy.to * bytes, cache.keys.data() + copy.from * bytes, bytes);
      std::memcpy(cache.values.data() + copy.to * bytes, cache.values.data() + copy.from * bytes, bytes);
    }
  }
}

}  // namespace carat::exec::cpu
