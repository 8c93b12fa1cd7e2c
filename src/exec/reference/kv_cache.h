#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/kv_geometry.h"

namespace carat::exec::reference {

// Keys and values of all sequences in fp32, so that the cache rounds nothing. Their rows lie as KvGeometry says.
class KvCache {
 public:
  // Throws kOutOfMemory saying what is needed. The geometry must outlive the cache.
  KvCache(const model::Config& config, const model::KvGeometry& geometry, uint32_t sequences);

  // The hd values of one key/value head.
  std::span<float> key(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return row(layers_[layer].keys, layer, sequence, head, position);
  }
  std::span<float> value(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return row(layers_[layer].values, layer, sequence, head, position);
  }

 private:
  struct LayerCache {  // empty where the layer has no cache of its own
    std::vector<float> keys, values;
    size_t hd = 0;
  };
  std::span<float> row(std::vector<float>& plane, uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    const size_t hd = layers_[layer].hd;
    return std::span(plane).subspan(geometry_.row(layer, sequence, head, position) * hd, hd);
  }

  const model::KvGeometry& geometry_;
  std::vector<LayerCache> layers_;
};

}  // namespace carat::exec::reference
