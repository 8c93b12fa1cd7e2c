#include "exec/cuda/weights/placement.h"

#include <algorithm>
#include <vector>

#include "exec/cuda/kernels/fp8.h"
#include "exec/cuda/kernels/wgmma_tiles.h"
#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

namespace {

uint64_t padded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

uint64_t packed_size(const model::Matrix& matrix) {
  return packed_matrix_bytes(packing_of(matrix.format), matrix.rows * matrix.slices, matrix.cols);
}

uint64_t bf16_size(const model::Matrix& matrix) { return padded(matrix.rows * matrix.slices * matrix.cols * 2); }

uint64_t fp8_size(const model::Matrix& matrix) { return padded(matrix.rows * matrix.cols) + padded(matrix.rows * 4); }

std::vector<const model::Matrix*> layer_matrices(const model::LayerWeights& layer) {
  std::vector<const model::Matrix*> all;
  for (const model::Matrix* matrix :
       {&layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.attn_output, &layer.ffn_gate, &layer.ffn_up,
        &layer.ffn_down, &layer.inp_gate, &layer.proj, &layer.ffn_gate_up_exps, &layer.ffn_gate_exps,
        &layer.ffn_up_exps, &layer.ffn_down_exps}) {
    if (!matrix->empty()) all.push_back(matrix);
  }
  return all;
}

// Of one expert.
bool readable(const model::Matrix& matrix, uint64_t rows) {
  return !matrix.empty() && wgmma_reads(packing_of(matrix.format), rows, matrix.cols);
}

}  // namespace

bool packed_expert_gate_up(const model::LayerWeights& layer) {
  if (!layer.ffn_gate_up_exps.empty()) return readable(layer.ffn_gate_up_exps, layer.ffn_gate_up_exps.rows / 2);
  return readable(layer.ffn_gate_exps, layer.ffn_gate_exps.rows) &&
         packing_of(layer.ffn_gate_exps.format) == packing_of(layer.ffn_up_exps.format);
}

bool packed_expert_down(const model::LayerWeights& layer) {
  return readable(layer.ffn_down_exps, layer.ffn_down_exps.rows);
}

bool fp8_reads(std::initializer_list<const model::Matrix*> matrices) {
  return reads_all(matrices, [](const model::Matrix& m) { return m.rows % kFp8Unit == 0 && fp8_columns_fit(m.cols); });
}

WeightBytes weight_bytes(const model::Model& model, uint32_t first_layer) {
  const model::Weights& weights = model.weights();
  WeightBytes bytes;
  const auto add = [&](const model::Matrix& matrix) {
    bytes.packed += packed_size(matrix);
    bytes.bf16 += bf16_size(matrix);
  };
  const auto add_fp8 = [&](std::initializer_list<const model::Matrix*> group) {
    if (!fp8_reads(group)) return;
    for (const model::Matrix* matrix : group) {
      if (matrix->empty()) continue;
      bytes.fp8 += fp8_size(*matrix);
      bytes.bf16_as_fp8 += bf16_size(*matrix);
    }
  };
  for (uint32_t i = first_layer; i < model.config().L; ++i) {
    const model::LayerWeights& layer = weights.layers[i];
    for (const model::Matrix* matrix : layer_matrices(layer)) add(*matrix);
    add_fp8({&layer.attn_q, &layer.attn_k, &layer.attn_v});
    add_fp8({&layer.attn_output});
    add_fp8({&layer.ffn_gate, &layer.ffn_up});
    add_fp8({&layer.ffn_down});
    if (packed_expert_gate_up(layer)) {
      for (const model::Matrix* matrix : {&layer.ffn_gate_up_exps, &layer.ffn_gate_exps, &layer.ffn_up_exps}) {
        if (!matrix->empty()) bytes.bf16_experts += bf16_size(*matrix);
      }
    }
    if (packed_expert_down(layer)) bytes.bf16_experts += bf16_size(layer.ffn_down_exps);
    if (!layer.ffn_gate_inp.empty()) {
      bytes.packed += packed_matrix_bytes(Packing::kF32, layer.ffn_gate_inp.rows, layer.ffn_gate_inp.cols);
      bytes.vectors += layer.ffn_gate_inp.rows * layer.ffn_gate_inp.cols * 4;
    }
    bytes.vectors += (12 * uint64_t{model.config().d} + 4096) * 4;
  }
  add(weights.output);
  if (weights.token_embd.data.data() != weights.output.data.data()) bytes.packed += packed_size(weights.token_embd);
  if (!weights.per_layer_model_proj.empty()) {
    add(weights.per_layer_model_proj);
    bytes.ple_table = packed_size(weights.per_layer_token_embd);
  }
  bytes.vectors += 4 * uint64_t{model.config().d} * 4;
  return bytes;
}

}  // namespace carat::cuda
