#include "model/model.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "model/tensor_binder.h"

namespace carat::model {
namespace {

// Wants the layer's tensors under blk.<index>.; `name` in the member functions is what follows that prefix.
class LayerBinder {
 public:
  LayerBinder(TensorBinder& binder, const Config& config, const Layer& layer)
      : binder_(binder), config_(config), layer_(layer), prefix_(fmt::format("blk.{}.", layer.index)) {}

  LayerWeights bind() {
    LayerWeights weights;
    bind_attention(weights);
    bind_feed_forward(weights);
    if (layer_.moe) bind_experts(weights);
    if (config_.P > 0) bind_per_layer_embedding(weights);
    // Optional in models (missing means 1), always there in drafters.
    if (config_.is_drafter() || has("layer_output_scale.weight")) {
      weights.output_scale = vector("layer_output_scale.weight", 1).front();
    }
    return weights;
  }

 private:
  void bind_attention(LayerWeights& weights) {
    const uint64_t d = config_.d;
    const uint64_t q_width = uint64_t{layer_.H} * layer_.hd;
    const uint64_t kv_width = uint64_t{layer_.Hkv} * layer_.hd;
    weights.attn_norm = vector("attn_norm.weight", d);
    weights.attn_q = matrix("attn_q.weight", d, q_width);
    weights.attn_q_norm = vector("attn_q_norm.weight", layer_.hd);
    if (layer_.owns_kv) {
      weights.attn_k = matrix("attn_k.weight", d, kv_width);
      weights.attn_k_norm = vector("attn_k_norm.weight", layer_.hd);
      if (!layer_.v_from_k) weights.attn_v = matrix("attn_v.weight", d, kv_width);
    }
    weights.attn_output = matrix("attn_output.weight", q_width, d);
    weights.post_attention_norm = vector("post_attention_norm.weight", d);
  }

  void bind_feed_forward(LayerWeights& weights) {
    const uint64_t d = config_.d;
    weights.ffn_norm = vector("ffn_norm.weight", d);
    weights.ffn_gate = matrix("ffn_gate.weight", d, layer_.F);
    weights.ffn_up = matrix("ffn_up.weight", d, layer_.F);
    weights.ffn_down = matrix("ffn_down.weight", layer_.F, d);
    weights.post_ffw_norm = vector("post_ffw_norm.weight", d);
  }

  void bind_experts(LayerWeights& weights) {
    const uint64_t d = config_.d, experts = config_.experts, F_expert = config_.F_expert;
    weights.ffn_gate_inp = matrix("ffn_gate_inp.weight", d, experts);
    weights.ffn_gate_inp_scale = vector("ffn_gate_inp.scale", d);
    weights.pre_ffw_norm_2 = vector("pre_ffw_norm_2.weight", d);
    weights.post_ffw_norm_1 = vector("post_ffw_norm_1.weight", d);
    weights.post_ffw_norm_2 = vector("post_ffw_norm_2.weight", d);
    if (has("ffn_gate_up_exps.weight")) {
      weights.ffn_gate_up_exps = matrix("ffn_gate_up_exps.weight", d, 2 * F_expert, experts);
    } else {
      weights.ffn_gate_exps = matrix("ffn_gate_exps.weight", d, F_expert, experts);
      weights.ffn_up_exps = matrix("ffn_up_exps.weight", d, F_expert, experts);
    }
    weights.ffn_down_exps = matrix("ffn_down_exps.weight", F_expert, d, experts);
    if (has("ffn_down_exps.scale")) {
      weights.ffn_down_exps_scale = vector("ffn_down_exps.scale", experts);
    } else {
      weights.ffn_down_exps_scale.assign(experts, 1.0f);
    }
  }

  void bind_per_layer_embedding(LayerWeights& weights) {
    weights.inp_gate = matrix("inp_gate.weight", config_.d, config_.P);
    weights.proj = matrix("proj.weight", config_.P, config_.d);
    weights.post_norm = vector("post_norm.weight", config_.d);
  }

  bool has(std::string_view name) const { return binder_.has(full(name)); }
  Matrix matrix(std::string_view name, uint64_t cols, uint64_t rows, uint64_t slices = 1) {
    return binder_.matrix(full(name), cols, rows, slices);
  }
  Vector vector(std::string_view name, uint64_t length) { return binder_.vector(full(name), length); }
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }

  TensorBinder& binder_;
  const Config& config_;
  const Layer& layer_;
  std::string prefix_;
};

Vector bind_rope_divisors(TensorBinder& binder, const Config& config) {
  // The last layer is always global, so its head dimension is the global one.
  Vector divisors = binder.vector("rope_freqs.weight", config.layers.back().hd / 2);
  for (const float divisor : divisors) {
    if (!std::isfinite(divisor) || divisor == 0.0f) {
      fail(ErrorCode::kBadFile,
           "tensor rope_freqs.weight holds {}: its values divide angles and must be finite and not zero", divisor);
    }
  }
  return divisors;
}

Weights bind_weights(TensorBinder& binder, const Config& config) {
  const uint64_t d = config.d;
  Weights weights;
  weights.token_embd = binder.matrix("token_embd.weight", d, config.V);
  weights.output = binder.has("output.weight") ? binder.matrix("output.weight", d, config.V) : weights.token_embd;
  weights.output_norm = binder.vector("output_norm.weight", d);
  weights.rope_freqs = bind_rope_divisors(binder, config);
  if (config.P > 0) {
    const uint64_t width = uint64_t{config.P} * config.L;
    weights.per_layer_token_embd = binder.matrix("per_layer_token_embd.weight", width, config.V);
    weights.per_layer_model_proj = binder.matrix("per_layer_model_proj.weight", d, width);
    weights.per_layer_proj_norm = binder.vector("per_layer_proj_norm.weight", config.P);
  }
  if (config.is_drafter()) {
    weights.nextn_pre_projection = binder.matrix("nextn.pre_projection.weight", 2 * uint64_t{config.d_target}, d);
    weights.nextn_post_projection = binder.matrix("nextn.post_projection.weight", d, config.d_target);
  }
  weights.layers.reserve(config.L);
  for (const Layer& layer : config.layers) weights.layers.push_back(LayerBinder(binder, config, layer).bind());
  return weights;
}

}  // namespace

Matrix Matrix::rows_of(uint64_t slice, uint64_t first, uint64_t count) const {
  CARAT_CHECK(slice < slices && first <= rows && count <= rows - first);
  Matrix part = *this;
  part.rows = count;
  part.slices = 1;
  part.data = data.subspan((slice * rows + first) * row_bytes(), count * row_bytes());
  return part;
}

Matrix LayerWeights::expert_gate(uint32_t expert) const {
  if (ffn_gate_up_exps.empty()) return ffn_gate_exps.rows_of(expert, 0, ffn_gate_exps.rows);
  return ffn_gate_up_exps.rows_of(expert, 0, ffn_gate_up_exps.rows / 2);
}

Matrix LayerWeights::expert_up(uint32_t expert) const {
  if (ffn_gate_up_exps.empty()) return ffn_up_exps.rows_of(expert, 0, ffn_up_exps.rows);
  return ffn_gate_up_exps.rows_of(expert, ffn_gate_up_exps.rows / 2, ffn_gate_up_exps.rows / 2);
}

Matrix LayerWeights::expert_down(uint32_t expert) const { return ffn_down_exps.rows_of(expert, 0, ffn_down_exps.rows); }

std::shared_ptr<const Model> Model::load(std::shared_ptr<const gguf::ModelFile> file) {
  // make_shared cannot reach the private constructor.
  std::shared_ptr<Model> model(new Model);
  model->config_ = read_config(*file);
  try {
    TensorBinder binder(*file);
    model->weights_ = bind_weights(binder, model->config_);
    model->parameters_ = binder.parameters();
    model->weight_bytes_ = binder.bytes();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", file->path(), error.what()));
  }
  model->file_ = std::move(file);
  return model;
}

}  // namespace carat::model
