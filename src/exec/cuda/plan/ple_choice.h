#pragma once

#include <string>

#include "exec/cuda/device/facts.h"
#include "exec/cuda/plan/gemm_choice.h"
#include "model/model.h"

namespace carat::cuda {

// Why the end of a layer cannot be one kernel (kernels/ple_step.h) in decode steps of the layers from `first_layer` on;
// empty: it can. The model has per-layer embeddings.
std::string ple_cluster_obstacle(const model::Model& model, const GpuFacts& gpu, GemmKind gemm, uint32_t first_layer);

}  // namespace carat::cuda
