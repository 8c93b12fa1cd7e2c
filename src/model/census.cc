#include "model/census.h"

#include <algorithm>
#include <array>

#include "model/tensor_name.h"

namespace carat::model {

namespace {

constexpr std::array<std::string_view, 10> kBlockMatrices = {
    "attn_q.weight", "attn_k.weight",   "attn_v.weight",   "attn_output.weight", "ffn_gate.weight",
    "ffn_up.weight", "ffn_down.weight", "inp_gate.weight", "proj.weight",        "ffn_gate_inp.weight",
};
constexpr std::array<std::string_view, 4> kExpertMatrices = {"ffn_gate_up_exps.weight", "ffn_gate_exps.weight",
                                                             "ffn_up_exps.weight", "ffn_down_exps.weight"};
constexpr std::array<std::string_view, 3> kKeyValueTensors = {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"};
constexpr std::array<std::string_view, 3> kInputProjections = {
    "per_layer_model_proj.weight", "nextn.pre_projection.weight", "nextn.post_projection.weight"};
constexpr std::array<std::string_view, 3> kGlobalVectors = {"output_norm.weight", "rope_freqs.weight",
                                                            "per_layer_proj_norm.weight"};

template <size_t kSize>
bool contains(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Census take_census(std::span<const CensusTensor> tensors, uint32_t n_kv, uint32_t experts, uint32_t experts_used) {
  Census census;
  census.tensors = tensors.size();
  for (const auto& [name, count] : tensors) {
    if (const auto block = split_block_name(name)) {
      if (block->layer >= n_kv && contains(kKeyValueTensors, block->kind)) {
        census.unused_kv += count;
      } else if (contains(kBlockMatrices, block->kind)) {
        census.block_matrices += count;
        census.active_matrices += count;
      } else if (experts > 0 && contains(kExpertMatrices, block->kind)) {
        census.block_matrices += count;
        census.active_matrices += {count.elements / experts * experts_used, count.bytes / experts * experts_used};
      } else {
        census.vectors += count;
      }
    } else if (name == "token_embd.weight") {
      census.embedding += count;
    } else if (name == "output.weight") {
      census.head += count;
    } else if (name == "per_layer_token_embd.weight") {
      census.per_layer_table += count;
    } else if (contains(kInputProjections, name)) {
      census.input_projections += count;
    } else if (contains(kGlobalVectors, name)) {
      census.vectors += count;
    } else {
      census.other += count;
    }
  }
  return census;
}

}  // namespace carat::model
