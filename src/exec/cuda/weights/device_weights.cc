#include "exec/cuda/weights/device_weights.h"

#include <chrono>
#include <cmath>

#include "exec/cuda/device/check.h"
#include "exec/cuda/weights/fp8_copy.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {

namespace {

uint64_t padded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// Gate rows of each expert before its up rows, as one matrix that holds both has them already.
std::vector<PackedView> stacked_gate_up(const model::Config& config, const std::vector<PackedView>& parts) {
  if (parts.size() < 2) return parts;
  std::vector<PackedView> stacked;
  for (uint32_t e = 0; e < config.experts; ++e) {
    for (const PackedView& part : parts) {
      stacked.push_back(packed_rows(part, uint64_t{e} * config.F_expert, config.F_expert));
    }
  }
  return stacked;
}

}  // namespace

uint32_t MatrixGroup::rows_before(size_t part) const {
  uint32_t sum = 0;
  for (size_t p = 0; p < part; ++p) sum += parts[p].rows;
  return sum;
}

void* DeviceWeights::Cursor::take(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  void* at = base == nullptr ? nullptr : base + used;
  used += padded(bytes);
  return at;
}

DeviceWeights::DeviceWeights(const model::Model& model, const WeightPlacement& placement, const ProductPaths& paths,
                             const UploadProgress& progress) {
  place(model, placement, paths);
  packed_ = DeviceMemory(device_.used, "the model's weights");
  vectors_ = DeviceMemory(host_vectors_.size() * sizeof(float), "the model's norms");
  host_table_ = PinnedMemory(host_.used, "the per-layer-embedding table");
  device_ = {packed_.as<char>(), 0};
  host_ = {host_.used == 0 ? nullptr : static_cast<char*>(host_table_.device_data()), 0};
  place(model, placement, paths);
  check(cudaMemcpy(vectors_.data(), host_vectors_.data(), host_vectors_.size() * sizeof(float), cudaMemcpyHostToDevice),
        "uploading norms");
  uploaded_ = upload(model.file(), uploads_, progress);
  if (placement.resident_bf16 || placement.resident_fp8) make_copies(model, placement);
  uploads_.clear();
  host_vectors_.clear();
}

PackedView DeviceWeights::reserve(const model::Matrix& matrix, Cursor& cursor) {
  PackedView view;
  view.packing = packing_of(matrix.format);
  view.rows = static_cast<uint32_t>(matrix.rows * matrix.slices);
  view.cols = static_cast<uint32_t>(matrix.cols);
  view.steps = steps_of(matrix.cols);
  const PackedBytes bytes = packed_bytes(view.packing);
  const uint64_t cells = uint64_t{view.rows} * view.steps;
  view.quants = cursor.take(cells * bytes.quants);
  view.high = cursor.take(cells * bytes.high);
  view.scales = cursor.take(cells * bytes.scales);
  view.super = cursor.take(cells * bytes.super);
  uploads_.push_back({matrix, view});
  return view;
}

const float* DeviceWeights::vector(const model::Vector& values, float scale) {
  if (values.empty()) return nullptr;
  const size_t at = host_vectors_.size();
  for (const float value : values) host_vectors_.push_back(value * scale);
  while (host_vectors_.size() % 64 != 0) host_vectors_.push_back(0.0f);
  return vectors_.data() == nullptr ? nullptr : vectors_.as<float>() + at;
}

void DeviceWeights::place(const model::Model& model, const WeightPlacement& placement, const ProductPaths& paths) {
  const model::Weights& weights = model.weights();
  uploads_.clear();
  host_vectors_.clear();
  head = {};
  head.path = paths.head;
  ple_projection = {};
  ple_projection.path = paths.ple_input;
  layers.assign(model.config().L, {});
  for (uint32_t i = placement.first_layer; i < model.config().L; ++i) place_layer(model, i, paths);
  output_norm = vector(weights.output_norm);
  head.parts = {reserve(weights.output)};
  const bool tied = weights.token_embd.data.data() == weights.output.data.data();
  token_embd = tied ? head.parts.front() : reserve(weights.token_embd);
  if (!weights.per_layer_model_proj.empty()) {
    ple_projection.parts = {reserve(weights.per_layer_model_proj)};
    ple_norm = vector(weights.per_layer_proj_norm);
    // A table that does not fit lies in page-locked host memory; kernels gather its rows from there.
    ple_table = reserve(weights.per_layer_token_embd, placement.ple_on_device ? device_ : host_);
  }
}

void DeviceWeights::place_layer(const model::Model& model, uint32_t index, const ProductPaths& paths) {
  const model::LayerWeights& from = model.weights().layers[index];
  DeviceLayer& to = layers[index];
  to.attn_norm = vector(from.attn_norm);
  to.q_norm = vector(from.attn_q_norm);
  to.k_norm = vector(from.attn_k_norm);
  to.post_attention_norm = vector(from.post_attention_norm);
  to.ffn_norm = vector(from.ffn_norm);
  to.post_ffw_norm = vector(from.post_ffw_norm);
  to.post_norm = vector(from.post_norm);
  to.output_scale = from.output_scale;

  if (model.config().layers[index].moe) place_router(model, index);
  for_each_group(model, index, [&](const LayerGroup& group) {
    MatrixGroup& placed = to[group.kind()];
    placed.path = paths.of(index, group.kind());
    for (const model::Matrix* matrix : group) placed.parts.push_back(reserve(*matrix));
  });
  if (const auto& experts = to[GroupKind::kExpertGateUp].parts; !experts.empty()) {
    const uint32_t F = model.config().F_expert;
    const bool fused = experts.size() == 1;
    to.expert_gate = {experts.front(), fused ? 2 * F : F, 0};
    to.expert_up = {experts.back(), fused ? 2 * F : F, fused ? F : 0};
  }
}

// The router's vectors, and the router itself in fp32 beside its packed rows: flipping an expert costs more than any
// rounding elsewhere.
void DeviceWeights::place_router(const model::Model& model, uint32_t index) {
  const model::LayerWeights& from = model.weights().layers[index];
  DeviceLayer& to = layers[index];
  const float inverse_root_d = 1.0f / std::sqrt(static_cast<float>(model.config().d));
  to.router_scale = vector(from.ffn_gate_inp_scale, inverse_root_d);
  to.pre_ffw_norm_2 = vector(from.pre_ffw_norm_2);
  to.post_ffw_norm_1 = vector(from.post_ffw_norm_1);
  to.post_ffw_norm_2 = vector(from.post_ffw_norm_2);
  to.expert_scale = vector(from.ffn_down_exps_scale);
  std::vector<std::byte> stored(from.ffn_gate_inp.data.size());
  model.file().read(from.ffn_gate_inp.data, stored.data());
  model::Vector router(from.ffn_gate_inp.rows * from.ffn_gate_inp.cols);
  quant::info(from.ffn_gate_inp.format).dequantise(stored.data(), router.data(), router.size());
  to.router = vector(router);
}

const __nv_bfloat16* DeviceWeights::stack_bf16(const std::vector<PackedView>& parts) {
  uint64_t elements = 0;
  for (const PackedView& part : parts) elements += uint64_t{part.rows} * part.cols;
  auto* first = static_cast<__nv_bfloat16*>(copies_.take(elements * 2));
  __nv_bfloat16* next = first;
  for (const PackedView& part : parts) {
    unpack_bf16(part, next, part.cols, nullptr);
    next += uint64_t{part.rows} * part.cols;
  }
  return first;
}

Fp8Matrix DeviceWeights::stack_fp8(const std::vector<PackedView>& parts) {
  uint64_t rows = 0;
  for (const PackedView& part : parts) rows += part.rows;
  const Fp8Rows first{static_cast<uint8_t*>(copies_.take(rows * parts.front().cols)),
                      static_cast<float*>(copies_.take(rows * sizeof(float)))};
  Fp8Rows next = first;
  for (const PackedView& part : parts) {
    unpack_fp8(part, next, nullptr);
    next.values += uint64_t{part.rows} * part.cols;
    next.scales += part.rows;
  }
  return first;
}

// The copy that the group's path reads, where it reads one. parts: in the order they are stacked.
void DeviceWeights::make_copy(MatrixGroup& group, const std::vector<PackedView>& parts) {
  if (parts.empty()) return;
  if (group.path == ProductPath::kFp8) group.fp8 = stack_fp8(parts);
  if (group.path == ProductPath::kBf16) group.bf16 = stack_bf16(parts);
}

void DeviceWeights::make_copies(const model::Model& model, const WeightPlacement& placement) {
  const auto started = std::chrono::steady_clock::now();
  copies_memory_ =
      DeviceMemory(weight_bytes(model, placement.first_layer).copies(placement), "weight copies for matrix products");
  copies_ = {copies_memory_.as<char>(), 0};
  make_copy(head, head.parts);
  make_copy(ple_projection, ple_projection.parts);
  for (DeviceLayer& layer : layers) {
    for (MatrixGroup& group : layer.groups) {
      const bool expert_gate_up = &group == &layer[GroupKind::kExpertGateUp];
      make_copy(group, expert_gate_up ? stacked_gate_up(model.config(), group.parts) : group.parts);
    }
  }
  check(cudaDeviceSynchronize(), "making weight copies");
  copies_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

}  // namespace carat::cuda
