#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace carat::model {
namespace {

using gguf::ValueType;

bool is_integer(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kU16:
    case ValueType::kI16:
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kU64:
    case ValueType::kI64:
      return true;
    default:
      return false;
  }
}

// Typed and range-checked access to the keys of one architecture; every error names the full key.
class Keys {
 public:
  Keys(const gguf::Metadata& metadata, std::string architecture)
      : metadata_(metadata), prefix_(std::move(architecture) + ".") {}

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return metadata_.find(full(key)) != nullptr; }

  std::optional<uint32_t> integer(std::string_view key, uint32_t least, uint32_t most) const {
    const std::optional<uint64_t> value = metadata_.unsigned_integer(full(key));
    if (!value) return std::nullopt;
    return in_range(full(key), *value, least, most);
  }

  uint32_t required_integer(std::string_view key, uint32_t least, uint32_t most) const {
    const std::optional<uint32_t> value = integer(key, least, most);
    if (!value) fail_missing(key);
    return *value;
  }

  // A finite number; nullopt when the key is absent.
  std::optional<float> number(std::string_view key) const {
    const std::optional<double> value = metadata_.number(full(key));
    if (!value) return std::nullopt;
    if (!std::isfinite(static_cast<float>(*value))) fail(ErrorCode::kBadFile, "{} is not finite", full(key));
    return static_cast<float>(*value);
  }

  std::optional<float> positive_number(std::string_view key) const {
    const std::optional<float> value = number(key);
    if (value && !(*value > 0.0f)) fail(ErrorCode::kBadFile, "{} is {} but must be positive", full(key), *value);
    return value;
  }

  // One value for each of `layers` layers, from a single number or an array; nullopt when the key is absent.
  std::optional<std::vector<uint32_t>> per_layer(std::string_view key, uint32_t layers) const {
    const gguf::Value* value = metadata_.find(full(key));
    if (!value) return std::nullopt;
    if (value->type != ValueType::kArray) {
      return std::vector<uint32_t>(layers, *integer(key, 1, kMaxWidth));
    }
    const gguf::Array& array = array_of(key, layers);
    if (!is_integer(array.element)) {
      fail(ErrorCode::kBadFile, "{} is an array of {} but must hold integers", full(key),
           gguf::value_type_name(array.element));
    }
    std::vector<uint32_t> values(layers);
    for (uint32_t i = 0; i < layers; ++i) {
      const int64_t element = array.integer(i);
      const std::string name = fmt::format("{}[{}]", full(key), i);
      if (element < 0) fail(ErrorCode::kBadFile, "{} is {} but must be from 1 to {}", name, element, kMaxWidth);
      values[i] = in_range(name, static_cast<uint64_t>(element), 1, kMaxWidth);
    }
    return values;
  }

  std::vector<bool> required_flags(std::string_view key, uint32_t layers) const {
    if (!has(key)) fail_missing(key);
    const gguf::Array& array = array_of(key, layers);
    if (array.element != ValueType::kBool) {
      fail(ErrorCode::kBadFile, "{} is an array of {} but must hold bools", full(key),
           gguf::value_type_name(array.element));
    }
    std::vector<bool> flags(layers);
    for (uint32_t i = 0; i < layers; ++i) flags[i] = array.integer(i) != 0;
    return flags;
  }

  [[noreturn]] void fail_missing(std::string_view key) const {
    fail(ErrorCode::kBadFile, "{} is missing: the file is damaged or was converted by an unsuitable tool", full(key));
  }

 private:
  static uint32_t in_range(const std::string& name, uint64_t value, uint32_t least, uint32_t most) {
    if (value < least || value > most) {
      fail(ErrorCode::kBadFile, "{} is {} but must be from {} to {}", name, value, least, most);
    }
    return static_cast<uint32_t>(value);
  }

  const gguf::Array& array_of(std::string_view key, uint32_t layers) const {
    const gguf::Array* array = metadata_.array(full(key));
    CARAT_CHECK(array != nullptr);
    if (array->count != layers) {
      fail(ErrorCode::kBadFile, "{} has {} entries but the model has {} layers", full(key), array->count, layers);
    }
    return *array;
  }

  const gguf::Metadata& metadata_;
  std::string prefix_;
};

// The head dimension of one kind of layer: keys and values must agree, the rotation must span the whole head, and the
// half-split rotation needs pairs.
uint32_t read_head_dimension(const Keys& keys, std::string_view suffix, std::optional<uint32_t> default_dimension) {
  const std::string key = fmt::format("attention.key_length{}", suffix);
  const std::string value = fmt::format("attention.value_length{}", suffix);
  const std::optional<uint32_t> key_length = keys.integer(key, 2, kMaxWidth);
  const std::optional<uint32_t> value_length = keys.integer(value, 2, kMaxWidth);
  if (!key_length && !default_dimension) keys.fail_missing(key);
  if (!value_length && !default_dimension) keys.fail_missing(value);
  const uint32_t hd = key_length ? *key_length : *default_dimension;
  const uint32_t hd_value = value_length ? *value_length : *default_dimension;
  if (hd != hd_value) {
    fail(ErrorCode::kBadFile, "{} is {} but {} is {}: they must be equal", keys.full(key), hd, keys.full(value),
         hd_value);
  }
  if (hd == 0 || hd % 2 != 0) {
    fail(ErrorCode::kBadFile, "{} is {} but must be even and positive", keys.full(key), hd);
  }
  return hd;
}

void check_rotation(const Keys& keys, uint32_t hd_global, uint32_t hd_sliding) {
  const uint32_t span = keys.integer("rope.dimension_count", 1, kMaxWidth).value_or(hd_global);
  if (span != hd_global) {
    fail(ErrorCode::kBadFile, "{} is {} but the global head dimension is {}: they must be equal",
         keys.full("rope.dimension_count"), span, hd_global);
  }
  // The format's own default for the sliding span is the global one, not the sliding head dimension.
  const uint32_t span_sliding = keys.integer("rope.dimension_count_swa", 1, kMaxWidth).value_or(span);
  if (span_sliding != hd_sliding) {
    fail(ErrorCode::kBadFile, "{} is {}{} but the sliding head dimension is {}: they must be equal",
         keys.full("rope.dimension_count_swa"), span_sliding,
         keys.has("rope.dimension_count_swa") ? "" : " (by default: the key is missing)", hd_sliding);
  }
}

// Generic keys that would change the arithmetic. No Gemma 4 model uses them; ignoring one would give wrong answers.
void refuse_foreign_arithmetic(const gguf::Metadata& metadata, const Keys& keys) {
  const std::string type_key = keys.full("rope.scaling.type");
  const std::string_view type = metadata.string(type_key).value_or("linear");
  if (type != "none" && type != "linear") {
    fail(ErrorCode::kUnsupported, "{} is \"{}\": carat runs Gemma 4 without rope scaling", type_key, type);
  }
  const float factor = keys.number("rope.scaling.factor").value_or(1.0f);
  if (type == "linear" && factor != 1.0f && factor != 0.0f) {
    fail(ErrorCode::kUnsupported, "{} is {}: carat runs Gemma 4 without rope scaling", keys.full("rope.scaling.factor"),
         factor);
  }
  if (!metadata.boolean(keys.full("attention.causal")).value_or(true)) {
    fail(ErrorCode::kUnsupported, "{} is false: carat runs causal models only", keys.full("attention.causal"));
  }
}

uint32_t read_vocabulary(const gguf::ModelFile& file, const Keys& keys, uint32_t d) {
  const gguf::TensorView* table = file.find("token_embd.weight");
  if (!table)
    fail(ErrorCode::kBadFile, "tensor token_embd.weight is missing: the file is damaged or holds no text model");
  const auto& ne = table->info.ne;
  if (table->info.dimensions != 2 || ne[0] != d || ne[1] > kMaxWidth) {
    fail(ErrorCode::kBadFile, "tensor token_embd.weight has the shape [{}, {}, {}, {}] but must be [{}, vocabulary]",
         ne[0], ne[1], ne[2], ne[3], d);
  }
  const uint32_t V = static_cast<uint32_t>(ne[1]);
  const uint32_t claimed = keys.integer("vocab_size", 1, kMaxWidth).value_or(V);
  if (claimed != V) {
    fail(ErrorCode::kBadFile, "{} is {} but token_embd.weight has {} rows", keys.full("vocab_size"), claimed, V);
  }
  return V;
}

void read_experts(const Keys& keys, Config& config) {
  config.experts = keys.integer("expert_count", 0, kMaxExperts).value_or(0);
  config.experts_used = keys.integer("expert_used_count", 0, kMaxExperts).value_or(0);
  config.F_expert = keys.integer("expert_feed_forward_length", 0, kMaxWidth).value_or(0);
  if (config.experts == 0) {
    if (config.experts_used != 0) {
      fail(ErrorCode::kBadFile, "{} is {} but {} is 0", keys.full("expert_used_count"), config.experts_used,
           keys.full("expert_count"));
    }
    return;
  }
  if (config.experts_used == 0 || config.experts_used > config.experts) {
    fail(ErrorCode::kBadFile, "{} is {} but must be from 1 to {} ({})", keys.full("expert_used_count"),
         config.experts_used, config.experts, keys.full("expert_count"));
  }
  if (config.F_expert == 0) {
    fail(ErrorCode::kBadFile, "{} is missing or 0 but the model has {} experts",
         keys.full("expert_feed_forward_length"), config.experts);
  }
}

// Which layers are sliding, how wide they are, and whose cache they read (the KV-sharing rule of docs/gemma4.md 1).
void read_layers(const Keys& keys, Config& config) {
  const uint32_t L = config.L;
  const auto F = keys.per_layer("feed_forward_length", L);
  const auto H = keys.per_layer("attention.head_count", L);
  if (!F) keys.fail_missing("feed_forward_length");
  if (!H) keys.fail_missing("attention.head_count");
  const std::vector<uint32_t> Hkv = keys.per_layer("attention.head_count_kv", L).value_or(*H);
  const std::vector<bool> sliding = keys.required_flags("attention.sliding_window_pattern", L);
  if (sliding.back()) {
    fail(ErrorCode::kBadFile, "{} ends with a sliding layer but the last layer must be global",
         keys.full("attention.sliding_window_pattern"));
  }
  const uint32_t hd_global = read_head_dimension(keys, "", config.d / H->front());
  const uint32_t hd_sliding = read_head_dimension(keys, "_swa", std::nullopt);
  check_rotation(keys, hd_global, hd_sliding);

  std::optional<uint32_t> last_sliding_owner, last_global_owner;
  for (uint32_t i = 0; i < L; ++i) {
    Layer layer;
    layer.index = i;
    layer.sliding = sliding[i];
    layer.H = (*H)[i];
    layer.Hkv = Hkv[i];
    layer.hd = layer.sliding ? hd_sliding : hd_global;
    layer.F = (*F)[i];
    layer.owns_kv = i < config.n_kv;
    layer.kv_source = i;
    if (layer.H % layer.Hkv != 0) {
      fail(ErrorCode::kBadFile, "layer {} has {} heads ({}), no multiple of its {} key/value heads ({})", i, layer.H,
           keys.full("attention.head_count"), layer.Hkv, keys.full("attention.head_count_kv"));
    }
    if (uint64_t{layer.H} * layer.hd > kMaxWidth) {
      fail(ErrorCode::kBadFile, "layer {} has {} heads ({}) of dimension {}: more than {} values in all", i, layer.H,
           keys.full("attention.head_count"), layer.hd, kMaxWidth);
    }
    std::optional<uint32_t>& owner = layer.sliding ? last_sliding_owner : last_global_owner;
    if (layer.owns_kv) {
      owner = i;
    } else if (!config.is_drafter()) {
      if (!owner) {
        fail(ErrorCode::kBadFile, "{} is {}, which leaves no {} layer whose cache layer {} could share",
             keys.full("attention.shared_kv_layers"), L - config.n_kv, layer.sliding ? "sliding" : "global", i);
      }
      layer.kv_source = *owner;
      if (layer.Hkv != Hkv[*owner]) {
        fail(ErrorCode::kBadFile, "layer {} has {} key/value heads ({}) but shares the cache of layer {}, which has {}",
             i, layer.Hkv, keys.full("attention.head_count_kv"), *owner, Hkv[*owner]);
      }
    }
    config.layers.push_back(layer);
  }
  if (!config.is_drafter() && (!last_sliding_owner || !last_global_owner)) {
    fail(ErrorCode::kBadFile, "{} and {} leave no {} layer with keys and values of its own",
         keys.full("attention.sliding_window_pattern"), keys.full("attention.shared_kv_layers"),
         last_sliding_owner ? "global" : "sliding");
  }
}

// What only the tensors tell: layers without attn_v take V from the K projection, layers with a router have experts.
void read_layer_kinds(const gguf::ModelFile& file, const Keys& keys, Config& config) {
  std::optional<uint32_t> first_global_owner;
  for (Layer& layer : config.layers) {
    layer.moe = file.find(fmt::format("blk.{}.ffn_gate_inp.weight", layer.index)) != nullptr;
    if (layer.moe != (config.experts > 0)) {
      fail(ErrorCode::kBadFile, "{} is {} but tensor blk.{}.ffn_gate_inp.weight is {}", keys.full("expert_count"),
           config.experts, layer.index, layer.moe ? "present" : "missing");
    }
    if (!layer.owns_kv || layer.sliding) continue;  // only global layers may do without attn_v
    layer.v_from_k = file.find(fmt::format("blk.{}.attn_v.weight", layer.index)) == nullptr;
    if (!first_global_owner) first_global_owner = layer.index;
    // V from K is a property of the whole model: a single missing tensor is damage, not a choice.
    if (layer.v_from_k != config.layers[*first_global_owner].v_from_k) {
      fail(ErrorCode::kBadFile, "tensor blk.{}.attn_v.weight is missing but other global layers have theirs",
           layer.v_from_k ? layer.index : *first_global_owner);
    }
  }
}

void read_per_layer_embedding(const gguf::ModelFile& file, const Keys& keys, Config& config) {
  const std::string_view key = "embedding_length_per_layer_input";
  config.P = config.is_drafter() ? keys.integer(key, 0, 0).value_or(0) : keys.required_integer(key, 0, kMaxWidth);
  if (uint64_t{config.P} * config.L > kMaxWidth) {
    fail(ErrorCode::kBadFile, "{} is {}: more than {} values over {} layers", keys.full(key), config.P, kMaxWidth,
         config.L);
  }
  if (config.P == 0 && file.find("per_layer_token_embd.weight")) {
    fail(ErrorCode::kBadFile, "{} is 0 but tensor per_layer_token_embd.weight is present", keys.full(key));
  }
}

void read_drafter_keys(const Keys& keys, Config& config) {
  config.d_target = keys.required_integer("embedding_length_out", 1, kMaxWidth);
  if (config.d_target == config.d) {
    fail(ErrorCode::kBadFile, "{} equals embedding_length but must be the hidden size of the model it drafts for",
         keys.full("embedding_length_out"));
  }
  keys.required_integer("nextn_predict_layers", config.L, config.L);
  keys.required_integer("attention.shared_kv_layers", config.L, config.L);
}

Config parse_config(const gguf::ModelFile& file) {
  const gguf::Metadata& metadata = file.metadata();
  Config config;
  const auto architecture = metadata.string("general.architecture");
  if (!architecture) fail(ErrorCode::kBadFile, "general.architecture is missing: this is no model file");
  config.architecture = *architecture;
  const bool drafter = config.architecture == kDrafterArchitecture;
  if (!drafter && config.architecture != kArchitecture) {
    fail(ErrorCode::kUnsupported, "general.architecture is \"{}\": carat runs {} models (and {} drafters) only",
         config.architecture, kArchitecture, kDrafterArchitecture);
  }
  config.name = metadata.string("general.name").value_or("");

  const Keys keys(metadata, config.architecture);
  refuse_foreign_arithmetic(metadata, keys);
  config.L = keys.required_integer("block_count", 1, kMaxLayers);
  config.d = keys.required_integer("embedding_length", 1, kMaxWidth);
  config.context_length = keys.required_integer("context_length", 1, kMaxPositions);
  config.W = keys.required_integer("attention.sliding_window", 1, kMaxPositions);
  const auto eps = keys.positive_number("attention.layer_norm_rms_epsilon");
  if (!eps) keys.fail_missing("attention.layer_norm_rms_epsilon");
  config.eps = *eps;
  config.rope_base_global = keys.positive_number("rope.freq_base").value_or(kDefaultRopeBase);
  config.rope_base_sliding = keys.positive_number("rope.freq_base_swa").value_or(kDefaultRopeBase);
  // Drafters have no soft-cap in any implementation, whatever their file says.
  config.softcap = drafter ? 0.0f : keys.number("final_logit_softcapping").value_or(kDefaultSoftcap);
  if (config.softcap < 0.0f) fail(ErrorCode::kBadFile, "{} is negative", keys.full("final_logit_softcapping"));

  if (drafter) {
    read_drafter_keys(keys, config);
    config.n_kv = 0;
  } else {
    config.n_kv = config.L - keys.integer("attention.shared_kv_layers", 0, config.L - 1).value_or(0);
  }
  config.V = read_vocabulary(file, keys, config.d);
  read_per_layer_embedding(file, keys, config);
  read_experts(keys, config);
  read_layers(keys, config);
  read_layer_kinds(file, keys, config);
  config.sampling = read_recommended_sampling(metadata);
  return config;
}

}  // namespace

float Config::embedding_scale() const { return std::sqrt(static_cast<float>(d)); }

Config read_config(const gguf::ModelFile& file) {
  try {
    return parse_config(file);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", file.path(), error.what()));
  }
}

}  // namespace carat::model
