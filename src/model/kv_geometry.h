#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace carat::model {

// How many positions the cache of each layer keeps, and where a position of a sequence lies in it: the one place on the
// host that decides it, for all executors. (Kernels have the same in exec/cuda/kernels/attention/kv_view.cuh.)
//
// A cache consists of cells, each of which keeps the key and the value of one position. Layers that see everything have
// a cell for every position of the context, sliding layers a ring of window - 1 + chunk cells, and layers that read the
// cache of another layer none (decision 6 of docs/architecture.md). Keys and values are planes of rows, a row for each
// key/value head and cell: [sequence][Hkv][cells][hd].
class KvGeometry {
 public:
  struct Group {  // owner layers with the same shape
    bool sliding;
    uint32_t Hkv, hd;
    uint32_t cells;  // of one sequence
    std::vector<uint32_t> layers;
    uint64_t values_per_cell() const { return uint64_t{2} * Hkv * hd; }  // K and V of one layer
  };

  // chunk: the most rows of one sequence in one forward pass. tile: the cells of a layer are a multiple of it, so that
  // positions [i * tile, (i + 1) * tile) lie in consecutive cells.
  KvGeometry(const Config& config, uint32_t context, uint32_t chunk, uint32_t tile = 1);

  uint32_t context() const { return context_; }
  uint32_t chunk() const { return chunk_; }
  const std::vector<Group>& groups() const { return groups_; }

  // Cells of one sequence in an owner layer; 0 in layers that read another layer's cache. All functions below are for
  // owner layers.
  uint32_t cells(uint32_t layer) const { return layers_[layer].cells; }
  // The cell of a position. It holds the position's key and value until position + cells(layer) is written.
  uint32_t cell(uint32_t layer, uint32_t position) const { return position % layers_[layer].cells; }
  // The end of the positions from `begin` on, at most `end`, that lie in consecutive cells.
  uint32_t contiguous_end(uint32_t layer, uint32_t begin, uint32_t end) const;
  // Rows of a plane that holds so many sequences, and the row of one position and key/value head.
  uint64_t rows(uint32_t layer, uint32_t sequences) const {
    return uint64_t{sequences} * layers_[layer].Hkv * layers_[layer].cells;
  }
  uint64_t row(uint32_t layer, uint32_t sequence, uint32_t kv_head, uint32_t position) const {
    const LayerCells& of = layers_[layer];
    return (uint64_t{sequence} * of.Hkv + kv_head) * of.cells + cell(layer, position);
  }
  // Bytes for one sequence when an element takes bytes_per_value (2 for F16; 1.0625 for Q8_0).
  uint64_t bytes(double bytes_per_value) const;

  // Can a sequence whose cache was written up to position `written` go on from position n <= written? False when some
  // key the window of position n needs was overwritten in a ring.
  bool can_resume(uint32_t n, uint32_t written) const;

 private:
  struct LayerCells {
    uint32_t cells = 0;  // 0: the layer has no cache of its own
    uint32_t Hkv = 0;
  };

  uint32_t context_;
  uint32_t chunk_;
  uint32_t window_;
  uint32_t sliding_cells_ = 0;
  std::vector<LayerCells> layers_;  // [L]
  std::vector<Group> groups_;
};

}  // namespace carat::model
