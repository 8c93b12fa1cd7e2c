#include "support/tiny_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "gguf/reader.h"
#include "support/files.h"
#include "support/random.h"
#include "support/tiny_vocabulary.h"

namespace carat::test {
namespace {

constexpr uint32_t kF32 = 0;

// Adds tensors with random values to a draft.
class TensorMaker {
 public:
  TensorMaker(GgufDraft& draft, quant::Format format, uint64_t seed) : draft_(draft), format_(format), random_(seed) {}

  // Values whose products with a normed input have about unit variance.
  void matrix(const std::string& name, uint64_t cols, uint64_t rows, uint64_t slices = 1, float gain = 1.0f) {
    const float scale = gain / std::sqrt(static_cast<float>(cols));
    const bool fits = cols % quant::info(format_).block == 0;
    std::vector<uint64_t> ne = {cols, rows};
    if (slices > 1) ne.push_back(slices);
    add(name, fits ? static_cast<uint32_t>(format_) : kF32, std::move(ne),
        random_.normals(cols * rows * slices, scale));
  }
  void f32_matrix(const std::string& name, uint64_t cols, uint64_t rows) {
    add(name, kF32, {cols, rows}, random_.normals(cols * rows, 2.0f));
  }
  void vector(const std::string& name, uint64_t length, float mean = 1.0f) {
    std::vector<float> values = random_.normals(length, 0.2f * mean);
    for (float& value : values) value += mean;
    add(name, kF32, {length}, std::move(values));
  }
  void values(const std::string& name, std::vector<float> values) {
    const uint64_t length = values.size();
    add(name, kF32, {length}, std::move(values));
  }
  float uniform(float low, float high) { return random_.uniform(low, high); }

 private:
  void add(const std::string& name, uint32_t type, std::vector<uint64_t> ne, std::vector<float> values) {
    draft_.tensors.push_back({name, type, std::move(ne), std::move(values)});
  }

  GgufDraft& draft_;
  quant::Format format_;
  Random random_;
};

// Norm weight of queries and keys for which scores have about unit variance at attention scale 1.
float head_norm(uint32_t hd) { return std::pow(static_cast<float>(hd), -0.25f); }

void add_rope_divisors(TensorMaker& make, uint32_t hd_global) {
  std::vector<float> divisors(hd_global / 2, 1e30f);
  std::fill_n(divisors.begin(), hd_global / 8, 1.0f);
  make.values("rope_freqs.weight", std::move(divisors));
}

void add_feed_forward(TensorMaker& make, const std::string& blk, uint32_t d, uint32_t F) {
  make.vector(blk + "ffn_norm.weight", d);
  make.matrix(blk + "ffn_gate.weight", d, F);
  make.matrix(blk + "ffn_up.weight", d, F);
  make.matrix(blk + "ffn_down.weight", F, d);
  make.vector(blk + "post_ffw_norm.weight", d);
}

void add_experts(TensorMaker& make, const std::string& blk, const TinyShape& s) {
  make.f32_matrix(blk + "ffn_gate_inp.weight", s.d, s.experts);
  make.vector(blk + "ffn_gate_inp.scale", s.d);
  make.vector(blk + "pre_ffw_norm_2.weight", s.d);
  make.vector(blk + "post_ffw_norm_1.weight", s.d);
  make.vector(blk + "post_ffw_norm_2.weight", s.d);
  if (s.fused_experts) {
    make.matrix(blk + "ffn_gate_up_exps.weight", s.d, 2 * s.F_expert, s.experts);
  } else {
    make.matrix(blk + "ffn_gate_exps.weight", s.d, s.F_expert, s.experts);
    make.matrix(blk + "ffn_up_exps.weight", s.d, s.F_expert, s.experts);
  }
  make.matrix(blk + "ffn_down_exps.weight", s.F_expert, s.d, s.experts);
  make.vector(blk + "ffn_down_exps.scale", s.experts);
}

void add_layer(TensorMaker& make, const TinyShape& s, uint32_t layer) {
  const std::string blk = fmt::format("blk.{}.", layer);
  const bool sliding = s.sliding(layer), owner = layer < s.L - s.shared;
  const uint32_t hd = sliding ? s.hd_sliding : s.hd_global;
  const uint32_t Hkv = sliding ? s.Hkv_sliding : s.Hkv_global;
  make.vector(blk + "attn_norm.weight", s.d);
  make.matrix(blk + "attn_q.weight", s.d, uint64_t{s.H} * hd);
  make.vector(blk + "attn_q_norm.weight", hd, head_norm(hd));
  if (owner || s.dead_kv) {
    make.matrix(blk + "attn_k.weight", s.d, uint64_t{Hkv} * hd);
    make.vector(blk + "attn_k_norm.weight", hd, head_norm(hd));
    if (sliding || !s.v_from_k) make.matrix(blk + "attn_v.weight", s.d, uint64_t{Hkv} * hd);
  }
  make.matrix(blk + "attn_output.weight", uint64_t{s.H} * hd, s.d);
  make.vector(blk + "post_attention_norm.weight", s.d);
  add_feed_forward(make, blk, s.d, owner ? s.F : s.F_shared);
  if (s.experts > 0) add_experts(make, blk, s);
  if (s.P > 0) {
    make.matrix(blk + "inp_gate.weight", s.d, s.P);
    make.matrix(blk + "proj.weight", s.P, s.d);
    make.vector(blk + "post_norm.weight", s.d);
  }
  make.values(blk + "layer_output_scale.weight", {make.uniform(0.5f, 1.0f)});
}

std::vector<int32_t> per_layer(uint32_t layers, const std::function<uint32_t(uint32_t)>& value) {
  std::vector<int32_t> values(layers);
  for (uint32_t i = 0; i < layers; ++i) values[i] = static_cast<int32_t>(value(i));
  return values;
}

// The keys a model and a drafter have in common.
void add_attention_keys(GgufDraft& draft, const std::string& prefix, const TinyShape& s) {
  draft.keys[prefix + "context_length"] = s.context;
  draft.keys[prefix + "attention.key_length"] = s.hd_global;
  draft.keys[prefix + "attention.value_length"] = s.hd_global;
  draft.keys[prefix + "attention.key_length_swa"] = s.hd_sliding;
  draft.keys[prefix + "attention.value_length_swa"] = s.hd_sliding;
  draft.keys[prefix + "attention.layer_norm_rms_epsilon"] = 1e-6f;
  draft.keys[prefix + "attention.sliding_window"] = s.W;
  draft.keys[prefix + "rope.freq_base"] = 1e6f;
  draft.keys[prefix + "rope.freq_base_swa"] = 1e4f;
  draft.keys[prefix + "rope.dimension_count"] = s.hd_global;
  draft.keys[prefix + "rope.dimension_count_swa"] = s.hd_sliding;
}

void add_keys(GgufDraft& draft, const TinyShape& s) {
  const std::string prefix = "gemma4.";
  draft.keys["general.architecture"] = std::string("gemma4");
  draft.keys["general.name"] = s.name;
  add_attention_keys(draft, prefix, s);
  draft.keys[prefix + "block_count"] = s.L;
  draft.keys[prefix + "embedding_length"] = s.d;
  draft.keys[prefix + "feed_forward_length"] =
      per_layer(s.L, [&](uint32_t i) { return i < s.L - s.shared ? s.F : s.F_shared; });
  draft.keys[prefix + "attention.head_count"] = s.H;
  draft.keys[prefix + "attention.head_count_kv"] =
      per_layer(s.L, [&](uint32_t i) { return s.sliding(i) ? s.Hkv_sliding : s.Hkv_global; });
  std::vector<bool> pattern(s.L);
  for (uint32_t i = 0; i < s.L; ++i) pattern[i] = s.sliding(i);
  draft.keys[prefix + "attention.sliding_window_pattern"] = pattern;
  draft.keys[prefix + "attention.shared_kv_layers"] = s.shared;
  draft.keys[prefix + "embedding_length_per_layer_input"] = s.P;
  draft.keys[prefix + "final_logit_softcapping"] = s.softcap;
  if (s.experts > 0) {
    draft.keys[prefix + "expert_count"] = s.experts;
    draft.keys[prefix + "expert_used_count"] = s.experts_used;
    draft.keys[prefix + "expert_feed_forward_length"] = s.F_expert;
  }
}

// Raises every width that is the input of a matrix to a multiple of `unit`.
void widen(TinyShape& s, uint32_t unit) {
  const auto raise = [unit](uint32_t& width) { width = (width + unit - 1) / unit * unit; };
  raise(s.d);
  raise(s.F);
  raise(s.F_shared);
  raise(s.F_expert);
  raise(s.P);
  while (s.H * s.hd_sliding % unit != 0) s.hd_sliding *= 2;
  s.hd_global = 2 * s.hd_sliding;
}

}  // namespace

std::string_view tiny_name(TinyKind kind) {
  constexpr std::array<std::string_view, kTinyKinds.size()> kNames = {"e2b", "e4b", "12b", "26b", "31b"};
  return kNames.at(static_cast<size_t>(kind));
}

TinyShape tiny_shape(TinyKind kind, uint32_t widths) {
  TinyShape s;
  s.name = fmt::format("tiny-{}", tiny_name(kind));
  switch (kind) {
    case TinyKind::kE2B:  // appendix B, model A; one key/value head as the real one
      s.L = 10, s.period = 5, s.shared = 5, s.P = 16, s.F_shared = 192, s.Hkv_sliding = 1, s.Hkv_global = 1;
      s.dead_kv = true;
      break;
    case TinyKind::kE4B:
      s.L = 9, s.period = 3, s.shared = 3, s.P = 16;
      break;
    case TinyKind::k12B:
      s.v_from_k = true, s.Hkv_global = 1;
      break;
    case TinyKind::k26B:  // appendix B, model B
      s.F = s.F_shared = 64, s.v_from_k = true, s.Hkv_global = 1, s.experts = 8, s.experts_used = 2, s.F_expert = 32;
      break;
    case TinyKind::k31B:
      s.H = 8, s.Hkv_sliding = 4, s.Hkv_global = 2, s.hd_sliding = 16, s.v_from_k = true;
      break;
  }
  widen(s, widths);
  return s;
}

GgufDraft tiny_draft(const TinyShape& s, quant::Format format, uint64_t seed) {
  GgufDraft draft;
  add_keys(draft, s);
  const uint32_t V = add_tiny_vocabulary(draft);
  TensorMaker make(draft, format, seed);
  // A gain of 3 spreads the logits, so that the best tokens win by more than rounding.
  make.matrix("token_embd.weight", s.d, V, 1, 3.0f);
  if (s.separate_output) make.matrix("output.weight", s.d, V, 1, 3.0f);
  make.vector("output_norm.weight", s.d);
  add_rope_divisors(make, s.hd_global);
  if (s.P > 0) {
    const uint64_t width = uint64_t{s.P} * s.L;
    make.matrix("per_layer_token_embd.weight", width, V);
    make.matrix("per_layer_model_proj.weight", s.d, width);
    make.vector("per_layer_proj_norm.weight", s.P);
  }
  for (uint32_t layer = 0; layer < s.L; ++layer) add_layer(make, s, layer);
  return draft;
}

GgufDraft tiny_drafter_draft(const TinyShape& target, uint64_t seed) {
  const uint32_t layers = 4, d = 32, H = 4, F = 64;
  const std::string prefix = "gemma4-assistant.";
  GgufDraft draft;
  draft.keys["general.architecture"] = std::string("gemma4-assistant");
  draft.keys["general.name"] = target.name + "-assistant";
  add_attention_keys(draft, prefix, target);
  draft.keys[prefix + "block_count"] = layers;
  draft.keys[prefix + "embedding_length"] = d;
  draft.keys[prefix + "embedding_length_out"] = target.d;
  draft.keys[prefix + "nextn_predict_layers"] = layers;
  draft.keys[prefix + "feed_forward_length"] = F;
  draft.keys[prefix + "attention.head_count"] = H;
  draft.keys[prefix + "attention.head_count_kv"] =
      std::vector<int32_t>{static_cast<int32_t>(target.Hkv_sliding), static_cast<int32_t>(target.Hkv_sliding),
                           static_cast<int32_t>(target.Hkv_sliding), static_cast<int32_t>(target.Hkv_global)};
  draft.keys[prefix + "attention.sliding_window_pattern"] = std::vector<bool>{true, true, true, false};
  draft.keys[prefix + "attention.shared_kv_layers"] = layers;
  draft.keys[prefix + "embedding_length_per_layer_input"] = uint32_t{0};
  const uint32_t V = add_tiny_vocabulary(draft);
  TensorMaker make(draft, quant::Format::kF32, seed);
  make.matrix("token_embd.weight", d, V);
  make.vector("output_norm.weight", d);
  add_rope_divisors(make, target.hd_global);
  make.matrix("nextn.pre_projection.weight", 2 * uint64_t{target.d}, d);
  make.matrix("nextn.post_projection.weight", d, target.d);
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string blk = fmt::format("blk.{}.", i);
    const uint32_t hd = i + 1 < layers ? target.hd_sliding : target.hd_global;
    make.vector(blk + "attn_norm.weight", d);
    make.matrix(blk + "attn_q.weight", d, uint64_t{H} * hd);
    make.vector(blk + "attn_q_norm.weight", hd, head_norm(hd));
    make.matrix(blk + "attn_output.weight", uint64_t{H} * hd, d);
    make.vector(blk + "post_attention_norm.weight", d);
    add_feed_forward(make, blk, d, F);
    make.values(blk + "layer_output_scale.weight", {make.uniform(0.5f, 1.0f)});
  }
  return draft;
}

std::shared_ptr<const model::Model> load_draft(const GgufDraft& draft) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("draft.gguf");
  draft.write(path);
  return model::Model::load(gguf::ModelFile::open(path));
}

std::shared_ptr<const model::Model> tiny_model(TinyKind kind, uint32_t widths, quant::Format format, uint64_t seed) {
  return load_draft(tiny_draft(tiny_shape(kind, widths), format, seed));
}

std::shared_ptr<const model::Model> tiny_model_of_large_values(TinyKind kind, uint32_t widths, quant::Format format) {
  // A power of two: every format rounds as before. Weights themselves stay within fp16, as those of real models do;
  // what they make of inputs that are about one does not (CpuOnLargeValues looks).
  constexpr float kGain = 32768.0f, kLargestFp16 = 65504.0f;
  GgufDraft draft = tiny_draft(tiny_shape(kind, widths), format);
  size_t grown = 0;
  for (GgufDraft::Tensor& tensor : draft.tensors) {
    const auto is = [&](std::string_view name) { return tensor.name.ends_with(std::string(name) + ".weight"); };
    if (!is(".attn_q") && !is(".attn_k") && !is(".attn_v") && !is(".attn_output") && !is(".ffn_up") &&
        !is(".ffn_up_exps") && !is(".ffn_down_exps") && !is(".proj")) {
      continue;
    }
    for (float& value : tensor.values) {
      value *= kGain;
      if (std::abs(value) > kLargestFp16) {
        throw std::logic_error("a weight of the draft is beyond fp16: " + tensor.name);
      }
    }
    ++grown;
  }
  if (grown == 0) throw std::logic_error("no tensor of the draft was made larger");
  return load_draft(draft);
}

}  // namespace carat::test
