#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/cpu/aligned_buffer.h"
#include "exec/cpu/kernel_table.h"
#include "exec/executor.h"
#include "exec/paging/paged_sequences.h"
#include "model/config.h"
#include "model/kv_pages.h"
#include "quant/format.h"

namespace carat::exec::cpu {

// Keys and values of all sequences and kept prefixes, in pages as model::KvPages has them. Which page holds what is
// known to PagedSequences; both must outlive the cache.
class KvCache {
 public:
  // Of the first `layers` layers. format: F16, F32 or Q8_0; anything else, and Q8_0 where a head is not a multiple of
  // 32 wide, throws kUnsupported. kOutOfMemory says what is needed.
  KvCache(const model::Config& config, const model::KvPages& geometry, const PagedSequences& sequences,
          const ExecutorOptions& options, uint32_t layers);

  // Bytes of a value, as it is kept, without rounding. Throws as the constructor does where the format is impossible.
  static double bytes_per_value(const model::Config& config, quant::Format format);

  quant::Format format() const { return format_; }
  uint64_t bytes() const { return bytes_; }

  // Where the rows of one head are.
  struct Rows {
    KvPagesView pages;
    const std::byte* keys;
    const std::byte* values;
  };
  Rows rows(uint32_t layer, uint32_t sequence, uint32_t head) const;
  // Where the key and value of one position go.
  std::byte* key(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return layers_[layer].keys.data() + offset(layer, sequence, head, position);
  }
  std::byte* value(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) {
    return layers_[layer].values.data() + offset(layer, sequence, head, position);
  }
  // What PagedSequences::begin asks for.
  void copy(std::span<const PageCopy> copies);

 private:
  struct LayerCache {  // empty where the layer has no cache of its own
    AlignedBuffer<std::byte> keys, values;
    size_t row_bytes = 0;  // of hd elements
  };
  size_t offset(uint32_t layer, uint32_t sequence, uint32_t head, uint32_t position) const {
    const uint32_t page = sequences_->page(geometry_->kind(layer), sequence, position);
    return geometry_->row(layer, page, head, position) * layers_[layer].row_bytes;
  }

  const model::KvPages* geometry_;
  const PagedSequences* sequences_;
  quant::Format format_;
  uint64_t bytes_ = 0;
  std::vector<LayerCache> layers_;
};

}  // namespace carat::exec::cpu
