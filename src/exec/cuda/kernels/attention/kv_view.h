#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace carat::cuda {

// The cache of one owner layer on the device, as kernels are given it: planes of keys and of values whose rows lie as
// model::KvGeometry says (with tiles of kKvTile positions). Kernels reach them through kv_view.cuh only.
struct KvView {
  // fp16: rows of hd values. Null where the cache is q8_0.
  __half* k = nullptr;
  __half* v = nullptr;
  uint32_t cells = 0;  // of one sequence, a multiple of kKvTile
  // q8_0: rows of hd int8 values, and rows of kv_scale_columns(hd) scales, one for 32 values; scales beyond hd / 32 are
  // zero. Null where the cache is fp16.
  int8_t* k_quants = nullptr;
  int8_t* v_quants = nullptr;
  __half* k_scales = nullptr;
  __half* v_scales = nullptr;

  bool quantised() const { return k_quants != nullptr; }
};

}  // namespace carat::cuda
