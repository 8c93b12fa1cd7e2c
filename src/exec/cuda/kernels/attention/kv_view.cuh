#pragma once

// Device code: where the key and the value of a position lie, to read and to write them. Kernels ask these functions
// and compute no such address themselves, so that caches can be laid out anew here. (The host's is model::KvGeometry.)
//
// Planes of rows, [sequence][Hkv][cells][row]: position p of a sequence is in cell p % cells.
#include "exec/cuda/kernels/attention/attention_shape.h"
#include "exec/cuda/kernels/attention/kv_view.h"

namespace carat::cuda {

// One key/value head of one sequence.
struct KvHead {
  uint32_t index;  // among those of all sequences

  __device__ __forceinline__ KvHead(const AttentionShape& shape, uint32_t sequence, uint32_t kv_head)
      : index(sequence * shape.Hkv + kv_head) {}
};

// The row of a position, counted from the beginning of its plane: a coordinate for copies by tensor maps (TMA). Those
// of an aligned tile of kKvTile positions follow one another.
__device__ __forceinline__ uint64_t kv_row(const KvView& kv, const KvHead& head, uint32_t position) {
  return static_cast<uint64_t>(head.index) * kv.cells + position % kv.cells;
}

// The positions that the token at `newest` sees: consecutive ones that begin anywhere, no more than there are cells.
// Numbered from the first on, the cell of each is known without a division.
struct KvRun {
  uint32_t newest_cell, first_cell;

  // before: how many positions before the newest belong to the run.
  static __device__ __forceinline__ KvRun ending_at(const KvView& kv, uint32_t newest, uint32_t before) {
    KvRun run;
    run.newest_cell = newest % kv.cells;
    run.first_cell = run.newest_cell - before + (run.newest_cell < before ? kv.cells : 0);
    return run;
  }
  __device__ __forceinline__ uint32_t cell(uint32_t i, uint32_t cells) const {
    const uint32_t cell = first_cell + i;
    return cell >= cells ? cell - cells : cell;
  }
};

// Up to kKvTile rows of a run: row j is at first + j * length where j < split, from there on at second + j * length.
template <typename T>
struct KvPieces {
  T* first;
  T* second;
  uint32_t split;
};

// The rows of one key/value head of one sequence, of its keys and of its values: `length` elements each.
template <typename T>
struct KvRows {
  T* keys;           // the row of cell 0
  T* values;         // likewise
  const KvView& kv;  // read again where it is used: a copy would take a register more
  uint32_t length;

  __device__ __forceinline__ T* plane(bool of_value) const { return of_value ? values : keys; }
  // The row of a position. Those of an aligned tile of kKvTile positions follow one another.
  __device__ __forceinline__ T* row(bool of_value, uint32_t position) const {
    return plane(of_value) + static_cast<uint64_t>(position % kv.cells) * length;
  }
  // The row of position i of a run, and that of its newest.
  __device__ __forceinline__ T* row(bool of_value, const KvRun& run, uint32_t i) const {
    return plane(of_value) + static_cast<uint64_t>(run.cell(i, kv.cells)) * length;
  }
  __device__ __forceinline__ T* newest_row(bool of_value, const KvRun& run) const {
    return plane(of_value) + static_cast<uint64_t>(run.newest_cell) * length;
  }
  // The rows of a run's positions from i on.
  __device__ __forceinline__ KvPieces<T> pieces(bool of_value, const KvRun& run, uint32_t i) const {
    const uint32_t cell = run.cell(i, kv.cells);
    T* const first = plane(of_value) + static_cast<uint64_t>(cell) * length;
    return {first, first - static_cast<uint64_t>(kv.cells) * length, kv.cells - cell};
  }
  // The same rows from their element `offset` on.
  __device__ __forceinline__ KvRows from(uint64_t offset) const { return {keys + offset, values + offset, kv, length}; }
};

// Of a cache in fp16: hd values a row.
__device__ __forceinline__ KvRows<__half> kv_halves(const KvView& kv, const KvHead& head, uint32_t hd) {
  const uint64_t first = static_cast<uint64_t>(head.index) * kv.cells * hd;
  return {kv.k + first, kv.v + first, kv, hd};
}
// Of a cache in q8_0: hd values a row, and their scales.
__device__ __forceinline__ KvRows<int8_t> kv_quants(const KvView& kv, const KvHead& head, uint32_t hd) {
  const uint64_t first = static_cast<uint64_t>(head.index) * kv.cells * hd;
  return {kv.k_quants + first, kv.v_quants + first, kv, hd};
}
__device__ __forceinline__ KvRows<__half> kv_scales(const KvView& kv, const KvHead& head, uint32_t columns) {
  const uint64_t first = static_cast<uint64_t>(head.index) * kv.cells * columns;
  return {kv.k_scales + first, kv.v_scales + first, kv, columns};
}

}  // namespace carat::cuda
