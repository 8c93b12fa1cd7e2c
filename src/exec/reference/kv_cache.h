#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/kv_layout.h"

namespace carat::exec::reference {

// Keys and values of all sequences in fp32, so that the cache rounds nothing. Slots follow the KvLayout.
class KvCache {
 public:
  // Throws kOutOfMemory saying what is needed. The layout must outlive the cache.
  KvCache(const model::Config& config, const model::KvLayout& layout, uint32_t sequences);

  std::span<float> key(uint32_t layer, uint32_t sequence, uint32_t position) {  // [Hkv * hd]
    return slot(layers_[layer].keys, layer, sequence, position);
  }
  std::span<float> value(uint32_t layer, uint32_t sequence, uint32_t position) {  // [Hkv * hd]
    return slot(layers_[layer].values, layer, sequence, position);
  }

 private:
  struct LayerCache {  // [sequences, slots, Hkv * hd] each; empty where the layer has no cache of its own
    std::vector<float> keys, values;
    size_t width = 0;
  };
  std::span<float> slot(std::vector<float>& values, uint32_t layer, uint32_t sequence, uint32_t position) {
    const size_t width = layers_[layer].width;
    const size_t index = size_t{sequence} * layout_.slots(layer) + layout_.slot(layer, position);
    return std::span(values).subspan(index * width, width);
  }

  const model::KvLayout& layout_;
  std::vector<LayerCache> layers_;
};

}  // namespace carat::exec::reference
