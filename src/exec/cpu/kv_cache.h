#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/cpu/aligned_buffer.h"
#include "model/config.h"
#include "model/kv_layout.h"
#include "quant/format.h"

namespace carat::exec::cpu {

// Keys and values of all sequences. Each key/value head has its slots back to back, so attention reads one stream.
class KvCache {
 public:
  // Of the first `layers` layers. format: F16, F32 or Q8_0; anything else, and Q8_0 where a head is not a multiple of
  // 32 wide, throws kUnsupported. The layout must outlive the cache.
  KvCache(const model::Config& config, const model::KvLayout& layout, uint32_t sequences, quant::Format format,
          uint32_t layers);

  quant::Format format() const { return format_; }
  uint64_t bytes() const { return bytes_; }
  uint32_t slots(uint32_t layer) const { return layout_->slots(layer); }

  // The [slots, hd] elements of one head.
  const std::byte* keys(uint32_t layer, uint32_t sequence, uint32_t head) const {
    return layers_[layer].keys.data() + offset(layer, sequence, head, 0);
  }
  const std::byte* values(uint32_t layer, uint32_t sequence, uint32_t head) const {
    return layers_[layer].values.data() + offset(layer, sequence, head, 0);
  }
  // Where the key and value of one position go.
  std::byte* key(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return layers_[layer].keys.data() + offset(layer, sequence, head, layout_->slot(layer, position));
  }
  std::byte* value(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return layers_[layer].values.data() + offset(layer, sequence, head, layout_->slot(layer, position));
  }

 private:
  struct LayerCache {  // [sequences, Hkv, slots, hd]; empty where the layer has no cache of its own
    AlignedBuffer<std::byte> keys, values;
    uint32_t Hkv = 0;
    size_t vector_bytes = 0;  // of hd elements
  };
  size_t offset(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t slot) const {
    const LayerCache& cache = layers_[layer];
    return ((size_t{sequence} * cache.Hkv + head) * layout_->slots(layer) + slot) * cache.vector_bytes;
  }

  const model::KvLayout* layout_;
  quant::Format format_;
  uint64_t bytes_ = 0;
  std::vector<LayerCache> layers_;
};

}  // namespace carat::exec::cpu
