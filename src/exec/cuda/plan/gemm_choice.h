#pragma once

#include <cstdint>
#include <string>

#include "exec/cuda/device/facts.h"
#include "exec/cuda/kernels/mmq/mmq_shape.h"
#include "exec/kernel_choice.h"
#include "model/model.h"

namespace carat::cuda {

// How the products of prompt chunks are made.
enum class GemmKind {
  kLibrary,  // cuBLASLt over bf16 weights
  kMmq,      // integer tensor-core products over the quantised weights; float matrices by the library still
  kFp8,      // the library over e4m3 weights and activations in the layers' dense products, over bf16 elsewhere
};

struct GemmChoice {
  GemmKind kind = GemmKind::kLibrary;
  MmqActivations activations = MmqActivations::kInt16;  // of kMmq
  std::string reason;
};

// Chosen for a GPU and a placement with or without bf16 copies of the weights; a pure function. e4m3 is never chosen
// unless it was asked for. Throws kBadArgument for wishes that contradict each other, the model or the GPU.
GemmChoice choose_gemm(const model::Model& model, const GpuFacts& gpu, const exec::KernelChoices& wishes,
                       uint32_t first_layer, bool bf16_copies);

}  // namespace carat::cuda
