#include "exec/cuda/kernels/mmq/mmq_shape.h"

#include <stdexcept>

namespace carat::cuda {

namespace {

// What a tile costs beyond its rows, in rows: weights are copied, unpacked and their scales decoded once per tile. On
// an H200 tiles of 128, 64 and 32 rows take times of 152 : 88 : 56, within 3%.
constexpr uint64_t kTileOverhead = 24;

}  // namespace

uint32_t mmq_tile_rows(Packing packing, MmqActivations activations, uint32_t rows, uint32_t column_tiles,
                       uint32_t sm_count) {
  if (!mmq_supports(packing) || rows == 0 || column_tiles == 0 || sm_count == 0) {
    throw std::logic_error("internal check failed: mmq tile");
  }
  // Tiles are dealt to the SMs in rounds, and a round that is not full takes as long as one that is. High tiles read
  // the weights less often, low ones leave fewer SMs idle in the last round and fewer rows empty in the last tile.
  uint32_t best = 0;
  uint64_t best_cost = 0;
  for (const uint32_t height : kMmqTileRows) {
    if (mmq_memory(packing, activations, height).slots == 0) continue;
    const uint64_t tiles = uint64_t{(rows + height - 1) / height} * column_tiles;
    const uint64_t cost = (tiles + sm_count - 1) / sm_count * (height + kTileOverhead);
    if (best == 0 || cost < best_cost) {
      best = height;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace carat::cuda
