#include "model/writing/mixture.h"

#include <algorithm>

namespace carat::model {

using quant::Format;

namespace {

constexpr Mixture kMixtures[] = {
    {"q4_k_m", 15, Format::kQ4_K},     {"q4_k_s", 14, Format::kQ4_K},     {"q5_k_m", 17, Format::kQ5_K},
    {"q5_k_s", 16, Format::kQ5_K},     {"q6_k", 18, Format::kQ6_K},       {"q3_k_l", 13, Format::kQ3_K},
    {"q3_k_m", 12, Format::kQ3_K},     {"q3_k_s", 11, Format::kQ3_K},     {"q2_k", 10, Format::kQ2_K},
    {"q2_k_s", 21, Format::kQ2_K},     {"iq4_nl", 25, Format::kIQ4_NL},   {"iq4_xs", 30, Format::kIQ4_XS},
    {"iq3_m", 27, Format::kIQ3_S},     {"iq3_s", 26, Format::kIQ3_S},     {"iq3_xs", 22, Format::kIQ3_S},
    {"iq3_xxs", 23, Format::kIQ3_XXS}, {"iq2_m", 29, Format::kIQ2_S},     {"iq2_s", 28, Format::kIQ2_XS},
    {"iq2_xs", 20, Format::kIQ2_XS},   {"iq2_xxs", 19, Format::kIQ2_XXS}, {"iq1_m", 31, Format::kIQ1_M},
    {"iq1_s", 24, Format::kIQ1_S},     {"tq1_0", 36, Format::kTQ1_0},     {"tq2_0", 37, Format::kTQ2_0},
    {"mxfp4_moe", 38, Format::kMXFP4},
};

// The kinds as the rules know them.
enum class Role { kTable, kQuery, kKey, kValue, kOutput, kDown, kGateOrUp, kOther };

Role role_of(std::string_view kind) {
  if (kind == "token_embd.weight" || kind == "per_layer_token_embd.weight" || kind == "output.weight") {
    return Role::kTable;
  }
  if (kind == "attn_q.weight") return Role::kQuery;
  if (kind == "attn_k.weight") return Role::kKey;
  if (kind == "attn_v.weight") return Role::kValue;
  if (kind == "attn_output.weight") return Role::kOutput;
  if (kind.starts_with("ffn_down")) return Role::kDown;
  if (kind.starts_with("ffn_gate") || kind.starts_with("ffn_up")) return Role::kGateOrUp;
  return Role::kOther;
}

// The first and last eighth, and every third between.
bool more_bits(const MixtureTensor& tensor) {
  const uint32_t eighth = tensor.count / 8;
  return tensor.ordinal < eighth || tensor.ordinal >= 7 * tensor.count / 8 || (tensor.ordinal - eighth) % 3 == 2;
}

bool in_first(const MixtureTensor& tensor, uint32_t part) { return tensor.ordinal < tensor.count / part; }

// Mixtures of at most two bits and a half have rules of their own.
Format two_bit_format(const Mixture& mixture, Role role, const MixtureTensor& tensor, const MixtureModel& model) {
  const bool larger = mixture.name == "iq2_s" || mixture.name == "iq2_m";
  const bool one_bit = mixture.name.starts_with("iq1");
  switch (role) {
    case Role::kValue:
      if (model.query_heads_per_kv_head >= 4 || model.has_experts) return Format::kQ4_K;
      return larger ? Format::kIQ3_S : Format::kQ2_K;
    case Role::kDown:
      return !in_first(tensor, 8) ? mixture.base : larger ? Format::kIQ3_S : Format::kQ2_K;
    case Role::kOutput:
      return larger ? Format::kIQ3_S : one_bit ? Format::kIQ2_XXS : mixture.base;
    default:
      return mixture.base;
  }
}

Format value_format(std::string_view name, Format base, const MixtureTensor& tensor, const MixtureModel& model) {
  const bool many_queries = model.query_heads_per_kv_head >= 4;
  if (name == "q2_k") return many_queries ? Format::kQ4_K : Format::kQ3_K;
  if (name == "iq3_xxs") return many_queries ? Format::kQ4_K : Format::kIQ3_XXS;
  if (name == "q2_k_s" || name == "iq3_xs" || name == "iq3_s") return many_queries ? Format::kQ4_K : base;
  if (name == "iq3_m") return Format::kQ4_K;
  if (name == "q3_k_m") return tensor.ordinal < 2 ? Format::kQ5_K : Format::kQ4_K;
  if (name == "q3_k_l") return Format::kQ5_K;
  if (name == "iq4_nl" || name == "iq4_xs") return many_queries ? Format::kQ5_K : base;
  if ((name == "q4_k_m" || name == "q5_k_m") && more_bits(tensor)) return Format::kQ6_K;
  if (name == "q4_k_s" && tensor.ordinal < 4) return Format::kQ5_K;
  return base;
}

Format down_format(std::string_view name, Format base, const MixtureTensor& tensor) {
  if (name == "q2_k") return Format::kQ3_K;
  if (name == "q2_k_s" && in_first(tensor, 8)) return Format::kQ4_K;
  if (name == "q3_k_m") return in_first(tensor, 16) ? Format::kQ5_K : Format::kQ4_K;
  if (name == "q3_k_l") return Format::kQ5_K;
  if (name == "iq3_m" && in_first(tensor, 8)) return Format::kQ4_K;
  if ((name == "q4_k_m" || name == "q5_k_m") && more_bits(tensor)) return Format::kQ6_K;
  if (name == "q4_k_s" && in_first(tensor, 8)) return Format::kQ5_K;
  return base;
}

Format output_format(std::string_view name, Format base) {
  if (name == "q2_k") return Format::kQ3_K;
  if (name == "iq3_xxs") return Format::kIQ3_S;
  if (name == "q3_k_m" || name == "iq3_m") return Format::kQ4_K;
  if (name == "q3_k_l") return Format::kQ5_K;
  return base;
}

}  // namespace

std::span<const Mixture> mixtures() { return kMixtures; }

const Mixture* find_mixture(std::string_view name) {
  const auto* found = std::ranges::find(kMixtures, name, &Mixture::name);
  return found == std::end(kMixtures) ? nullptr : found;
}

Format mixture_format(const Mixture& mixture, const MixtureTensor& tensor, const MixtureModel& model) {
  const Role role = role_of(tensor.kind);
  const std::string_view name = mixture.name;
  if (name == "mxfp4_moe") return tensor.kind.find("_exps.") != tensor.kind.npos ? Format::kMXFP4 : Format::kQ8_0;
  const bool two_bits = name.starts_with("iq2") || name.starts_with("iq1");
  if (role == Role::kTable) return two_bits || name == "iq3_xxs" ? Format::kQ5_K : Format::kQ6_K;
  if (two_bits) return two_bit_format(mixture, role, tensor, model);
  const bool narrow_queries = name == "iq3_xxs", middle = name == "iq3_xs";
  switch (role) {
    case Role::kValue:
      return value_format(name, mixture.base, tensor, model);
    case Role::kQuery:
    case Role::kKey:
      return narrow_queries ? Format::kIQ2_S : middle ? Format::kIQ3_XXS : mixture.base;
    case Role::kDown:
      return down_format(name, mixture.base, tensor);
    case Role::kOutput:
      return output_format(name, mixture.base);
    case Role::kGateOrUp:
      return middle && !in_first(tensor, 8) && tensor.ordinal < 7 * tensor.count / 8 ? Format::kIQ3_XXS : mixture.base;
    default:
      return mixture.base;
  }
}

}  // namespace carat::model
