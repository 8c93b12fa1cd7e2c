#pragma once

// What the rows of a tile are, which keys they see, and where the pieces of a tile lie in shared memory.
#include <cuda_runtime_api.h>

#include "exec/cuda/kernels/attention/attention_config.h"
#include "exec/cuda/kernels/attention/attention_shape.h"
#include "exec/cuda/kernels/attention/sparse/attention_sparse_shape.h"

namespace carat::cuda {

// Shared-memory tiles are rows of `kColumns` fp16 whose 16-byte chunks are permuted by XOR, so that the eight rows of a
// matrix load (and the rows of fragment stores) touch every bank once. Rows under 128 bytes share a line of banks.
template <int kColumns>
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  constexpr uint32_t kRowsPerLine = kColumns >= 64 ? 1 : 64 / kColumns;
  constexpr uint32_t kMask = kColumns >= 64 ? 7 : kColumns / 8 - 1;
  return row * kColumns * 2 + ((chunk ^ (row / kRowsPerLine & kMask)) << 4);
}

// The query row and head of a tile's row; `query` >= segment.count where the tile is not full.
struct QueryOfRow {
  uint32_t query;
  uint64_t offset;  // of its hd values in q and out

  __device__ __forceinline__ QueryOfRow(const AttentionShape& shape, const Segment& segment, uint32_t kv_head,
                                        uint32_t row) {
    const uint32_t group = shape.H / shape.Hkv;
    query = row / group;
    const uint32_t head = kv_head * group + row % group;
    offset = (static_cast<uint64_t>(segment.row + query) * shape.H + head) * shape.hd;
  }
};

// Keys that some row of the tile may see: positions [begin, end), in the key tiles first_tile ... + tiles.
struct KeyRange {
  uint32_t begin;
  uint32_t end;
  uint32_t first_tile;
  uint32_t tiles;

  // First position of tile i of `kKeys` keys.
  template <int kKeys>
  __device__ __forceinline__ uint32_t key(uint32_t i) const {
    return (first_tile + i) * kKeys;
  }
  // That of one tile after the other.
  template <int kKeys>
  struct Cursor {
    uint32_t key;
    __device__ __forceinline__ explicit Cursor(const KeyRange& range) : key(range.first_tile * kKeys) {}
    __device__ __forceinline__ void advance() { key += kKeys; }
  };
};

// Some of the keys: `tiles` tiles in blocks of kSparseBlock keys, of which those in [begin, end) exist.
struct SelectedKeys {
  uint32_t begin;
  uint32_t end;
  const uint16_t* blocks;  // ascending
  uint32_t tiles;

  template <int kKeys>
  __device__ __forceinline__ uint32_t key(uint32_t i) const {
    constexpr uint32_t kTilesOfBlock = kSparseBlock / kKeys;
    return blocks[i / kTilesOfBlock] * kSparseBlock + i % kTilesOfBlock * kKeys;
  }
  template <int kKeys>
  struct Cursor {
    static_assert(kKeys == kSparseBlock);
    const uint16_t* next;
    const uint16_t* end;
    uint32_t key;
    __device__ __forceinline__ explicit Cursor(const SelectedKeys& keys)
        : next(keys.blocks), end(keys.blocks + keys.tiles), key(*next * kSparseBlock) {}
    __device__ __forceinline__ void advance() {
      if (++next < end) key = *next * kSparseBlock;
    }
  };
};

// What each row may see: its own position and `span` keys before it.
template <AttentionTile T>
struct RowPositions {
  uint32_t position[AttentionLayout<T>::kRowTiles][2];  // of this thread's rows g and g + 8 of each 16-row tile
  uint32_t lowest, highest;                             // over all rows of the block
  uint32_t span;

  // Whether every row sees every key of the tile that starts at `key`.
  __device__ __forceinline__ bool all_visible(uint32_t key) const {
    return key + T.bn - 1 <= lowest && highest - key <= span;
  }
};

__device__ __forceinline__ uint32_t visible_span(uint32_t window) { return window == 0 ? 0x7fffffffu : window - 1; }

}  // namespace carat::cuda
