#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/cpu/aligned_buffer.h"
#include "exec/cpu/matmul/activations.h"
#include "exec/cpu/matmul/matmul.h"
#include "exec/cpu/threads/workers.h"
#include "exec/executor.h"
#include "model/model.h"

namespace carat::exec::cpu {

// Token embeddings and the per-layer embeddings (docs/gemma4.md 3.1 and 3.2).
class Embedding {
 public:
  // `cut`: per-layer inputs of layers [0, cut) and [cut, L) are computed in separate calls.
  Embedding(const model::Model& model, const Workers& workers, uint32_t cut, bool int16);

  // x: [rows, d], scaled.
  void tokens(std::span<const Row> rows, float* x) const;

  // Slices of the layers before, or from, the cut: ple [rows, P * L] at P * layer. x: the scaled embeddings.
  void layers_before_cut(std::span<const Row> rows, const float* x, ActivationBuffer& inputs, float* ple);
  void layers_from_cut(std::span<const Row> rows, const float* x, ActivationBuffer& inputs, float* ple);

 private:
  void project(const WeightMatrix& projection, uint32_t first_layer, std::span<const Row> rows, const float* x,
               ActivationBuffer& inputs, float* ple);

  const model::Model* model_;
  Workers workers_;
  uint32_t cut_;
  bool int16_;
  WeightMatrix before_, from_;                   // rows of per_layer_model_proj; empty when the range is
  std::vector<AlignedBuffer<float>> token_row_;  // [workers][P * L]
};

}  // namespace carat::exec::cpu
