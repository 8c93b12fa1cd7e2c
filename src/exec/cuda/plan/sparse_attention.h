#pragma once

#include <optional>

#include "exec/cuda/device/facts.h"
#include "exec/cuda/kernels/attention/sparse/attention_sparse_shape.h"
#include "exec/cuda/plan/buffers.h"
#include "exec/kernel_choice.h"
#include "model/config.h"

namespace carat::cuda {

// Whether long prompts visit only some key blocks in layers without a window (attention.long=sparse; only ever because
// it was asked for). Throws kBadArgument naming the reason where that cannot be.
std::optional<SparseAttention> choose_sparse_attention(const model::Config& config, const GpuFacts& gpu,
                                                       const exec::KernelChoices& kernels, uint32_t context);

// What the choice of blocks leaves for attention: kernels/attention_sparse.h has the layout.
struct SparseBuffers {
  __half* pooled;
  uint16_t* blocks;
  uint32_t* counts;
  uint32_t pooled_blocks, list_length;
  void carve(Carver& carver, const model::Config& config, const SparseAttention& sparse, uint32_t context,
             uint32_t chunk);
};

}  // namespace carat::cuda
