#include "model/recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "model/tensor_name.h"

namespace carat::model {

using quant::Format;

namespace {

struct PureType {
  Format format;
  uint32_t file_type;  // llama.cpp's number of the mixture whose base this type is
};

constexpr PureType kPureTypes[] = {
    {Format::kF32, 0},   {Format::kF16, 1},   {Format::kBF16, 32}, {Format::kQ8_0, 7},    {Format::kQ4_0, 2},
    {Format::kQ4_1, 3},  {Format::kQ5_0, 8},  {Format::kQ5_1, 9},  {Format::kQ2_K, 10},   {Format::kQ3_K, 11},
    {Format::kQ4_K, 14}, {Format::kQ5_K, 16}, {Format::kQ6_K, 18}, {Format::kIQ4_NL, 25}, {Format::kMXFP4, 38},
};

bool is_float(Format format) { return format == Format::kF32 || format == Format::kF16 || format == Format::kBF16; }

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::string type_name(Format format) { return lower_case(quant::info(format).name); }

// Vectors, and the matrices every known file keeps in F32.
bool stays_float32(const TensorShape& tensor) {
  return tensor.ne.size() < 2 || tensor.name.ends_with("_norm.weight") ||
         tensor.name.ends_with("ffn_gate_inp.weight") || !tensor.name.ends_with(".weight");
}

// The embedding tables and the LM head.
bool is_table(std::string_view name) {
  return name == "token_embd.weight" || name == "per_layer_token_embd.weight" || name == "output.weight";
}

// The layers whose attn_v and ffn_down keep more bits: the first and last eighth and every third between.
bool wants_more_bits(uint32_t ordinal, uint32_t count) {
  return ordinal < count / 8 || ordinal >= 7 * count / 8 || (ordinal - count / 8) % 3 == 2;
}

bool has_sensitive_layers(std::string_view kind) {
  return kind == "attn_v.weight" || kind == "ffn_down.weight" || kind == "ffn_down_exps.weight";
}

}  // namespace

uint64_t TensorShape::elements() const {
  uint64_t product = 1;
  for (const uint64_t n : ne) product *= n;
  return product;
}

Format fit_to_width(Format format, uint64_t width) {
  if (width % quant::info(format).block == 0) return format;
  Format fallback = Format::kF16;
  switch (format) {
    case Format::kQ2_K:
    case Format::kQ3_K:
      fallback = Format::kQ4_0;
      break;
    case Format::kQ4_K:
      fallback = Format::kQ5_0;
      break;
    case Format::kQ5_K:
      fallback = Format::kQ5_1;
      break;
    case Format::kQ6_K:
      fallback = Format::kQ8_0;
      break;
    default:
      break;
  }
  return width % quant::info(fallback).block == 0 ? fallback : Format::kF16;
}

std::vector<std::string> Recipe::names() {
  std::vector<std::string> names = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m"};
  for (const PureType& pure : kPureTypes) {
    if (!is_float(pure.format)) names.push_back(type_name(pure.format) + "-pure");
  }
  return names;
}

Recipe Recipe::parse(std::string_view text) {
  Recipe recipe;
  recipe.name_ = lower_case(text);
  if (recipe.name_ == "q4_k_m") {
    recipe.base_ = Format::kQ4_K;
    recipe.kind_ = Kind::kMedium;
    recipe.file_type_ = 15;
    return recipe;
  }
  for (const PureType& pure : kPureTypes) {
    const std::string type = type_name(pure.format);
    recipe.base_ = pure.format;
    recipe.file_type_ = pure.file_type;
    if (is_float(pure.format) && recipe.name_ == type) return recipe;
    if (!is_float(pure.format) && recipe.name_ == type + "-pure") return recipe;
    if ((pure.format == Format::kQ8_0 || pure.format == Format::kQ4_0) && recipe.name_ == type) {
      recipe.kind_ = Kind::kShipped;
      return recipe;
    }
  }
  fail(ErrorCode::kBadArgument, "unknown format '{}'; known: {}", text, fmt::join(names(), ", "));
}

bool Recipe::keeps_float_type(std::string_view name) const {
  return kind_ != Kind::kPure && name == "per_layer_model_proj.weight";
}

std::vector<Format> Recipe::formats(std::span<const TensorShape> tensors) const {
  // Files need not list layers in order, so a tensor's ordinal among its kind comes from the layer numbers.
  std::map<std::string_view, std::set<uint32_t>> layers_of_kind;
  for (const TensorShape& tensor : tensors) {
    const auto block = split_block_name(tensor.name);
    if (block && has_sensitive_layers(block->kind)) layers_of_kind[block->kind].insert(block->layer);
  }
  std::vector<Format> chosen;
  chosen.reserve(tensors.size());
  for (const TensorShape& tensor : tensors) {
    if (stays_float32(tensor)) {
      chosen.push_back(Format::kF32);
      continue;
    }
    Format format = base_;
    const auto block = split_block_name(tensor.name);
    if (keeps_float_type(tensor.name)) {
      format = Format::kBF16;
    } else if (kind_ != Kind::kPure && is_table(tensor.name) && base_ != Format::kQ8_0) {
      format = Format::kQ6_K;
    } else if (kind_ == Kind::kMedium && block && has_sensitive_layers(block->kind)) {
      const std::set<uint32_t>& layers = layers_of_kind[block->kind];
      const auto ordinal = std::distance(layers.begin(), layers.find(block->layer));
      if (wants_more_bits(static_cast<uint32_t>(ordinal), static_cast<uint32_t>(layers.size()))) format = Format::kQ6_K;
    }
    chosen.push_back(fit_to_width(format, tensor.ne[0]));
  }
  return chosen;
}

}  // namespace carat::model
