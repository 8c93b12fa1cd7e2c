#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"

namespace carat::cuda {

struct WeightPlacement {
  uint32_t first_layer = 0;     // layers [first_layer, L) are on the GPU
  bool resident_bf16 = false;   // keep bf16 copies for matrix products
  bool resident_fp8 = false;    // of the layers' dense matrices e4m3 copies instead
  bool packed_experts = false;  // but none of expert matrices that warpgroup products can read as they are packed
  bool ple_on_device = true;    // false: the per-layer-embedding table stays in page-locked host memory
};

// A format of the file without a packing that keeps its bits, and what that costs.
struct InflatedFormat {
  quant::Format format;
  uint64_t file_bytes = 0;
  uint64_t packed_bytes = 0;
};

// Bytes the weights take, by kind; which of them are taken is the placement's.
struct WeightBytes {
  uint64_t packed = 0;  // quantised matrices of the layers, and the embedding / LM head
  uint64_t ple_table = 0;
  uint64_t bf16 = 0;
  uint64_t bf16_experts = 0;  // of that: what packed_experts saves
  uint64_t bf16_as_fp8 = 0;   // of that: what resident_fp8 saves
  uint64_t fp8 = 0;           // with its scales
  uint64_t vectors = 0;
  std::vector<InflatedFormat> inflated;  // of what is in `packed` and `ple_table`
  uint64_t bf16_copies(const WeightPlacement& placement) const {
    if (!placement.resident_bf16) return 0;
    return bf16 - (placement.packed_experts ? bf16_experts : 0) - (placement.resident_fp8 ? bf16_as_fp8 : 0);
  }
  uint64_t fp8_copies(const WeightPlacement& placement) const { return placement.resident_fp8 ? fp8 : 0; }
  uint64_t copies(const WeightPlacement& placement) const { return bf16_copies(placement) + fp8_copies(placement); }
};

WeightBytes weight_bytes(const model::Model& model, uint32_t first_layer);

}  // namespace carat::cuda
