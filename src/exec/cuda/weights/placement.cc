#include "exec/cuda/weights/placement.h"

#include <algorithm>

#include "exec/cuda/weights/packing.h"
#include "exec/cuda/weights/product_path.h"

namespace carat::cuda {

namespace {

uint64_t padded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

uint64_t packed_size(const model::Matrix& matrix) {
  return packed_matrix_bytes(packing_of(matrix.format), matrix.rows * matrix.slices, matrix.cols);
}

uint64_t bf16_size(const model::Matrix& matrix) { return padded(matrix.rows * matrix.slices * matrix.cols * 2); }

uint64_t fp8_size(const model::Matrix& matrix) { return padded(matrix.rows * matrix.cols) + padded(matrix.rows * 4); }

// What takes more than an eighth above the file's bits is worth a word: padding alone takes less.
void count_inflation(const model::Matrix& matrix, WeightBytes& bytes) {
  const uint64_t packed = packed_size(matrix);
  if (quant::info(matrix.format).block == 1 || packed <= matrix.data.size() + matrix.data.size() / 8) return;
  auto found = std::ranges::find(bytes.inflated, matrix.format, &InflatedFormat::format);
  if (found == bytes.inflated.end()) found = bytes.inflated.insert(found, {.format = matrix.format});
  found->file_bytes += matrix.data.size();
  found->packed_bytes += packed;
}

// The router is in fp32 beside its packed rows.
void add_router(const model::Matrix& router, WeightBytes& bytes) {
  bytes.packed += packed_matrix_bytes(Packing::kF32, router.rows, router.cols);
  bytes.vectors += router.rows * router.cols * 4;
}

void add_group(const LayerGroup& group, WeightBytes& bytes) {
  if (group.kind() == GroupKind::kRouter) return add_router(group[0], bytes);
  uint64_t bf16 = 0;
  for (const model::Matrix* matrix : group) {
    bytes.packed += packed_size(*matrix);
    count_inflation(*matrix, bytes);
    bf16 += bf16_size(*matrix);
    if (fp8_reads(group)) bytes.fp8 += fp8_size(*matrix);
  }
  bytes.bf16 += bf16;
  if (fp8_reads(group)) bytes.bf16_as_fp8 += bf16;
  if (is_expert(group.kind()) && wgmma_reads(group)) bytes.bf16_experts += bf16;
}

}  // namespace

WeightBytes weight_bytes(const model::Model& model, uint32_t first_layer) {
  const model::Weights& weights = model.weights();
  WeightBytes bytes;
  const auto add = [&](const model::Matrix& matrix) {
    bytes.packed += packed_size(matrix);
    count_inflation(matrix, bytes);
    bytes.bf16 += bf16_size(matrix);
  };
  for (uint32_t i = first_layer; i < model.config().L; ++i) {
    for_each_group(model, i, [&](const LayerGroup& group) { add_group(group, bytes); });
    bytes.vectors += (12 * uint64_t{model.config().d} + 4096) * 4;
  }
  add(weights.output);
  if (weights.token_embd.data.data() != weights.output.data.data()) {
    bytes.packed += packed_size(weights.token_embd);
    count_inflation(weights.token_embd, bytes);
  }
  if (!weights.per_layer_model_proj.empty()) {
    add(weights.per_layer_model_proj);
    bytes.ple_table = packed_size(weights.per_layer_token_embd);
    count_inflation(weights.per_layer_token_embd, bytes);
  }
  bytes.vectors += 4 * uint64_t{model.config().d} * 4;
  return bytes;
}

}  // namespace carat::cuda
