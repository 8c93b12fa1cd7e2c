#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/cpu/aligned_buffer.h"
#include "exec/cpu/kernel_table.h"
#include "model/config.h"
#include "model/kv_geometry.h"
#include "quant/format.h"

namespace carat::exec::cpu {

// Keys and values of all sequences, in rows as KvGeometry has them: the cells of a key/value head lie back to back, so
// attention reads one stream.
class KvCache {
 public:
  // Of the first `layers` layers. format: F16, F32 or Q8_0; anything else, and Q8_0 where a head is not a multiple of
  // 32 wide, throws kUnsupported. The geometry must outlive the cache.
  KvCache(const model::Config& config, const model::KvGeometry& geometry, uint32_t sequences, quant::Format format,
          uint32_t layers);

  quant::Format format() const { return format_; }
  uint64_t bytes() const { return bytes_; }

  // Where one head's rows of positions [begin, end) lie; no more of them than a row of a pass can see.
  struct Span {
    KvPieces keys, values;
    uint32_t split;
  };
  Span span(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t begin, uint32_t end) const;
  // Where the key and value of one position go.
  std::byte* key(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return layers_[layer].keys.data() + offset(layer, sequence, head, position);
  }
  std::byte* value(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return layers_[layer].values.data() + offset(layer, sequence, head, position);
  }

 private:
  struct LayerCache {  // empty where the layer has no cache of its own
    AlignedBuffer<std::byte> keys, values;
    size_t row_bytes = 0;  // of hd elements
  };
  size_t offset(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) const {
    return geometry_->row(layer, sequence, head, position) * layers_[layer].row_bytes;
  }

  const model::KvGeometry* geometry_;
  quant::Format format_;
  uint64_t bytes_ = 0;
  std::vector<LayerCache> layers_;
};

}  // namespace carat::exec::cpu
