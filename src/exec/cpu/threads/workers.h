#pragma once

#include "base/thread_pool.h"
#include "exec/cpu/kernel_table.h"
#include "exec/cpu/matmul/activations.h"
#include "exec/cpu/matmul/matmul.h"
#include "exec/cpu/threads/parallel.h"

namespace carat::exec::cpu {

// What the parts of the executor compute with. Not owned.
struct Workers {
  const KernelTable* kernels;
  ThreadPool* pool;
  Multiplier* multiplier;

  // Calls prepare(row, worker) for every row of the buffer's source, which writes that row, and quantises it when a
  // matrix that is about to read it wants integers.
  template <typename Prepare>
  void prepare_rows(ActivationBuffer& inputs, bool quantise, const Prepare& prepare) const {
    const RowTiles tiles = inputs.tiles();
    for_each(*pool, tiles.count(), 1, [&](size_t item, unsigned worker) {
      const RowTiles::Tile tile = tiles.tile(static_cast<uint32_t>(item));
      for (uint32_t row = tile.first; row < tile.first + tile.width; ++row) prepare(row, worker);
      if (quantise) inputs.quantise(tile);
    });
  }

  template <typename Body>
  void for_each_row(uint32_t rows, const Body& body) const {
    for_each(*pool, rows, 4, [&](size_t row, unsigned worker) { body(static_cast<uint32_t>(row), worker); });
  }
};

}  // namespace carat::exec::cpu
