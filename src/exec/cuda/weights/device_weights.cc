#include "exec/cuda/weights/device_weights.h"

#include <chrono>
#include <cmath>

#include "exec/cuda/device/check.h"
#include "exec/cuda/weights/fp8_copy.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {

namespace {

uint64_t padded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

uint32_t MatrixGroup::rows() const {
  uint32_t sum = 0;
  for (const PackedView& part : parts) sum += part.rows;
  return sum;
}

void* DeviceWeights::Cursor::take(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  void* at = base == nullptr ? nullptr : base + used;
  used += padded(bytes);
  return at;
}

DeviceWeights::DeviceWeights(const model::Model& model, const WeightPlacement& placement,
                             const UploadProgress& progress) {
  place(model, placement);
  packed_ = DeviceMemory(device_.used, "the model's weights");
  vectors_ = DeviceMemory(host_vectors_.size() * sizeof(float), "the model's norms");
  host_table_ = PinnedMemory(host_.used, "the per-layer-embedding table");
  device_ = {packed_.as<char>(), 0};
  host_ = {host_.used == 0 ? nullptr : static_cast<char*>(host_table_.device_data()), 0};
  place(model, placement);
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

void DeviceWeights::place(const model::Model& model, const WeightPlacement& placement) {
  const model::Weights& weights = model.weights();
  uploads_.clear();
  host_vectors_.clear();
  head = {};
  ple_projection = {};
  layers.assign(model.config().L, {});
  for (uint32_t i = placement.first_layer; i < model.config().L; ++i) place_layer(model, i);
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

void DeviceWeights::place_layer(const model::Model& model, uint32_t index) {
  const model::LayerWeights& from = model.weights().layers[index];
  const model::Layer& plan = model.config().layers[index];
  DeviceLayer& to = layers[index];
  to.attn_norm = vector(from.attn_norm);
  to.q_norm = vector(from.attn_q_norm);
  to.k_norm = vector(from.attn_k_norm);
  to.post_attention_norm = vector(from.post_attention_norm);
  to.ffn_norm = vector(from.ffn_norm);
  to.post_ffw_norm = vector(from.post_ffw_norm);
  to.post_norm = vector(from.post_norm);
  to.output_scale = from.output_scale;

  to.qkv.parts = {reserve(from.attn_q)};
  if (plan.owns_kv) {
    to.qkv.parts.push_back(reserve(from.attn_k));
    if (!plan.v_from_k) to.qkv.parts.push_back(reserve(from.attn_v));
  }
  to.output.parts = {reserve(from.attn_output)};
  to.gate_up.parts = {reserve(from.ffn_gate), reserve(from.ffn_up)};
  to.down.parts = {reserve(from.ffn_down)};
  if (!from.inp_gate.empty()) {
    to.inp_gate.parts = {reserve(from.inp_gate)};
    to.proj.parts = {reserve(from.proj)};
  }
  if (!plan.moe) return;
  const float inverse_root_d = 1.0f / std::sqrt(static_cast<float>(model.config().d));
  to.router_scale = vector(from.ffn_gate_inp_scale, inverse_root_d);
  to.pre_ffw_norm_2 = vector(from.pre_ffw_norm_2);
  to.post_ffw_norm_1 = vector(from.post_ffw_norm_1);
  to.post_ffw_norm_2 = vector(from.post_ffw_norm_2);
  to.expert_scale = vector(from.ffn_down_exps_scale);
  // The router stays fp32 in both forms: flipping an expert costs more than any rounding elsewhere.
  std::vector<std::byte> stored(from.ffn_gate_inp.data.size());
  model.file().read(from.ffn_gate_inp.data, stored.data());
  model::Vector router(from.ffn_gate_inp.rows * from.ffn_gate_inp.cols);
  quant::info(from.ffn_gate_inp.format).dequantise(stored.data(), router.data(), router.size());
  to.router = vector(router);
  to.router_packed = reserve(from.ffn_gate_inp);
  const uint32_t F = model.config().F_expert;
  if (!from.ffn_gate_up_exps.empty()) {
    const PackedView fused = reserve(from.ffn_gate_up_exps);
    to.expert_gate = {fused, 2 * F, 0};
    to.expert_up = {fused, 2 * F, F};
  } else {
    to.expert_gate = {reserve(from.ffn_gate_exps), F, 0};
    to.expert_up = {reserve(from.ffn_up_exps), F, 0};
  }
  to.expert_down = reserve(from.ffn_down_exps);
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

void DeviceWeights::copy_layer(const model::Model& model, uint32_t index, const WeightPlacement& placement) {
  DeviceLayer& layer = layers[index];
  const model::LayerWeights& from = model.weights().layers[index];
  const auto copy = [&](MatrixGroup& group, bool as_fp8) {
    if (group.parts.empty()) return;
    if (placement.resident_fp8 && as_fp8) {
      group.fp8 = stack_fp8(group.parts);
    } else if (placement.resident_bf16) {
      group.bf16 = stack_bf16(group.parts);
    }
  };
  copy(layer.qkv, fp8_reads({&from.attn_q, &from.attn_k, &from.attn_v}));
  copy(layer.output, fp8_reads({&from.attn_output}));
  copy(layer.gate_up, fp8_reads({&from.ffn_gate, &from.ffn_up}));
  copy(layer.down, fp8_reads({&from.ffn_down}));
  copy(layer.inp_gate, false);
  copy(layer.proj, false);
  if (model.config().layers[index].moe && placement.resident_bf16) copy_experts(model, index, placement);
}

void DeviceWeights::copy_experts(const model::Model& model, uint32_t index, const WeightPlacement& placement) {
  DeviceLayer& layer = layers[index];
  const uint32_t F = model.config().F_expert;
  std::vector<PackedView> stacked;
  if (layer.expert_gate.stride == 2 * F) stacked = {layer.expert_gate.weights};  // fused in the file: already in order
  for (uint32_t e = 0; layer.expert_gate.stride == F && e < model.config().experts; ++e) {
    stacked.push_back(
        packed_rows(layer.expert_gate.weights, uint64_t{e} * layer.expert_gate.stride + layer.expert_gate.offset, F));
    stacked.push_back(
        packed_rows(layer.expert_up.weights, uint64_t{e} * layer.expert_up.stride + layer.expert_up.offset, F));
  }
  const model::LayerWeights& from = model.weights().layers[index];
  if (!placement.packed_experts || !packed_expert_gate_up(from)) layer.experts_gate_up_bf16 = stack_bf16(stacked);
  if (!placement.packed_experts || !packed_expert_down(from)) {
    layer.experts_down_bf16 = stack_bf16({layer.expert_down});
  }
}

void DeviceWeights::make_copies(const model::Model& model, const WeightPlacement& placement) {
  const auto started = std::chrono::steady_clock::now();
  copies_memory_ =
      DeviceMemory(weight_bytes(model, placement.first_layer).copies(placement), "weight copies for matrix products");
  copies_ = {copies_memory_.as<char>(), 0};
  if (placement.resident_bf16) {
    head.bf16 = stack_bf16(head.parts);
    if (!ple_projection.parts.empty()) ple_projection.bf16 = stack_bf16(ple_projection.parts);
  }
  for (uint32_t i = placement.first_layer; i < model.config().L; ++i) copy_layer(model, i, placement);
  check(cudaDeviceSynchronize(), "making weight copies");
  copies_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

}  // namespace carat::cuda
