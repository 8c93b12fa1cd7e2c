#pragma once

#include <cstdint>

#include "model/model.h"

namespace carat::cuda {

struct WeightPlacement {
  uint32_t first_layer = 0;    // layers [first_layer, L) are on the GPU
  bool resident_bf16 = false;  // keep bf16 copies for matrix products
  bool ple_on_device = true;   // false: the per-layer-embedding table stays in page-locked host memory
};

// Bytes the weights take, by kind; which of them are taken is the placement's.
struct WeightBytes {
  uint64_t packed = 0;  // quantised matrices of the layers, and the embedding / LM head
  uint64_t ple_table = 0;
  uint64_t bf16 = 0;
  uint64_t vectors = 0;
};
WeightBytes weight_bytes(const model::Model& model, uint32_t first_layer);

}  // namespace carat::cuda
