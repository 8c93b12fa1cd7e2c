#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/paging/paged_sequences.h"
#include "model/config.h"
#include "model/kv_pages.h"

namespace carat::exec::reference {

// Keys and values of all sequences and kept prefixes in fp32, so that the cache rounds nothing. They lie in pages as
// model::KvPages says; which page holds what is known to PagedSequences. Both must outlive the cache.
class KvCache {
 public:
  KvCache(const model::Config& config, const model::KvPages& geometry, const PagedSequences& sequences);

  // The hd values of one key/value head.
  std::span<float> key(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return row(layers_[layer].keys, layer, sequence, head, position);
  }
  std::span<float> value(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return row(layers_[layer].values, layer, sequence, head, position);
  }
  // What PagedSequences::begin asks for.
  void copy(std::span<const PageCopy> copies);

 private:
  struct LayerCache {  // empty where the layer has no cache of its own
    std::vector<float> keys, values;
    size_t hd = 0;
  };
  std::span<float> row(std::vector<float>& plane, uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    const size_t hd = layers_[layer].hd;
    const uint32_t page = sequences_.page(geometry_.kind(layer), sequence, position);
    return std::span(plane).subspan(geometry_.row(layer, page, head, position) * hd, hd);
  }

  const model::KvPages& geometry_;
  const PagedSequences& sequences_;
  std::vector<LayerCache> layers_;
};

}  // namespace carat::exec::reference
