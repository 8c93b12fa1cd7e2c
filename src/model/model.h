#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "model/config.h"
#include "quant/format.h"

namespace carat::model {

// A weight matrix as stored: `rows` rows of `cols` contiguous elements (in a file: [in = cols, out = rows]). A view
// into the mapped file. Expert tensors have `slices` such matrices back to back.
struct Matrix {
  std::string_view name;
  quant::Format format = quant::Format::kF32;
  uint64_t cols = 0;
  uint64_t rows = 0;
  uint64_t slices = 1;
  std::span<const std::byte> data;

  bool empty() const { return data.empty(); }
  uint64_t row_bytes() const { return quant::info(format).row_bytes(cols); }
  std::span<const std::byte> row(uint64_t r) const { return data.subspan(r * row_bytes(), row_bytes()); }
  // Rows [first, first + count) of slice s as a matrix of its own.
  Matrix rows_of(uint64_t slice, uint64_t first, uint64_t count) const;
};

// Norm weights, scales and other small vectors are kept as fp32 whatever the file stores.
using Vector = std::vector<float>;

struct LayerWeights {
  Vector attn_norm, attn_q_norm, attn_k_norm, post_attention_norm, ffn_norm, post_ffw_norm;  // attn_k_norm: owners only
  Matrix attn_q, attn_k, attn_v, attn_output;  // attn_k, attn_v empty where the layer has none
  Matrix ffn_gate, ffn_up, ffn_down;
  float output_scale = 1.0f;
  Matrix inp_gate, proj;  // PLE (P > 0)
  Vector post_norm;
  Matrix ffn_gate_inp;  // MoE router
  Vector ffn_gate_inp_scale, pre_ffw_norm_2, post_ffw_norm_1, post_ffw_norm_2;
  Matrix ffn_gate_up_exps, ffn_gate_exps, ffn_up_exps, ffn_down_exps;  // either the fused or the two separate tensors
  Vector ffn_down_exps_scale;                                          // [experts], ones when the file has none

  Matrix expert_gate(uint32_t expert) const;  // [d -> F_expert]
  Matrix expert_up(uint32_t expert) const;
  Matrix expert_down(uint32_t expert) const;  // [F_expert -> d]
};

struct Weights {
  Matrix token_embd;  // [V rows of d]
  Matrix output;      // the LM head; the same view as token_embd when tied
  Vector output_norm;
  Vector rope_freqs;             // [hd_global / 2] divisors
  Matrix per_layer_token_embd;   // [V rows of P*L]
  Matrix per_layer_model_proj;   // [d -> P*L]
  Vector per_layer_proj_norm;    // [P]
  Matrix nextn_pre_projection;   // [2 * d_target -> d], a drafter only
  Matrix nextn_post_projection;  // [d -> d_target], a drafter only
  std::vector<LayerWeights> layers;
};

// One loaded model: configuration and shape-checked weights over the mapped file. Immutable, shared by executors.
class Model {
 public:
  // Throws kBadFile naming the file and the tensor when one is missing, has the wrong shape or a type carat cannot
  // compute with. Tensors nothing reads (dead K/V of layers that share a cache, vision, audio) are ignored.
  static std::shared_ptr<const Model> load(std::shared_ptr<const gguf::ModelFile> file);

  const Config& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  const gguf::ModelFile& file() const { return *file_; }

  uint64_t parameters() const { return parameters_; }      // elements of all live tensors
  uint64_t weight_bytes() const { return weight_bytes_; }  // bytes of all live tensors

 private:
  Model() = default;
  std::shared_ptr<const gguf::ModelFile> file_;
  Config config_;
  Weights weights_;
  uint64_t parameters_ = 0;
  uint64_t weight_bytes_ = 0;
};

}  // namespace carat::model
