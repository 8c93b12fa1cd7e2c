#include "model/writing/recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "model/tensor_name.h"
#include "model/writing/mixture.h"

namespace carat::model {

using quant::Format;

namespace {

struct PureType {
  Format format;
  uint32_t file_type;  // llama.cpp's number of the mixture whose base this type is
};

constexpr PureType kPureTypes[] = {
    {Format::kF32, 0},      {Format::kF16, 1},    {Format::kBF16, 32},    {Format::kQ8_0, 7},    {Format::kQ4_0, 2},
    {Format::kQ4_1, 3},     {Format::kQ5_0, 8},   {Format::kQ5_1, 9},     {Format::kQ2_K, 10},   {Format::kQ3_K, 11},
    {Format::kQ4_K, 14},    {Format::kQ5_K, 16},  {Format::kQ6_K, 18},    {Format::kIQ4_NL, 25}, {Format::kMXFP4, 38},
    {Format::kIQ4_XS, 30},  {Format::kIQ3_S, 26}, {Format::kIQ3_XXS, 23}, {Format::kIQ2_S, 28},  {Format::kIQ2_XS, 20},
    {Format::kIQ2_XXS, 19}, {Format::kIQ1_M, 31}, {Format::kIQ1_S, 24},   {Format::kTQ1_0, 36},  {Format::kTQ2_0, 37},
    {Format::kNVFP4, 39},   {Format::kQ1_0, 40},  {Format::kQ2_0, 41},
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
    case Format::kIQ1_S:
    case Format::kIQ1_M:
    case Format::kIQ2_XXS:
    case Format::kIQ2_XS:
    case Format::kIQ2_S:
    case Format::kIQ3_XXS:
    case Format::kIQ3_S:
    case Format::kIQ4_XS:
      fallback = Format::kIQ4_NL;
      break;
    case Format::kQ2_K:
    case Format::kQ3_K:
    case Format::kTQ1_0:
    case Format::kTQ2_0:
    case Format::kQ2_0:
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
  std::vector<std::string> names = {"f32", "f16", "bf16", "q8_0", "q4_0"};
  for (const Mixture& mixture : mixtures()) names.emplace_back(mixture.name);
  for (const PureType& pure : kPureTypes) {
    if (!is_float(pure.format)) names.push_back(type_name(pure.format) + "-pure");
  }
  return names;
}

Recipe Recipe::parse(std::string_view text) {
  Recipe recipe;
  recipe.name_ = lower_case(text);
  if (const Mixture* mixture = find_mixture(recipe.name_)) {
    recipe.base_ = mixture->base;
    recipe.kind_ = Kind::kMixture;
    recipe.mixture_ = mixture;
    recipe.file_type_ = mixture->file_type;
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
  MixtureModel model = {.query_heads_per_kv_head = 1, .has_experts = false};
  uint64_t queries = 0, keys = 0;
  for (const TensorShape& tensor : tensors) {
    if (tensor.name == "blk.0.attn_q.weight") queries = tensor.ne[1];
    if (tensor.name == "blk.0.attn_k.weight") keys = tensor.ne[1];
    const auto block = split_block_name(tensor.name);
    if (!block) continue;
    layers_of_kind[block->kind].insert(block->layer);
    model.has_experts = model.has_experts || block->kind.ends_with("_exps.weight");
  }
  if (keys > 0) model.query_heads_per_kv_head = queries / keys;
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
    } else if (kind_ == Kind::kShipped && is_table(tensor.name) && base_ != Format::kQ8_0) {
      format = Format::kQ6_K;
    } else if (kind_ == Kind::kMixture) {
      MixtureTensor place = {.kind = tensor.name, .ordinal = 0, .count = 1};
      if (block) {
        const std::set<uint32_t>& layers = layers_of_kind[block->kind];
        const auto ordinal = std::distance(layers.begin(), layers.find(block->layer));
        place = {block->kind, static_cast<uint32_t>(ordinal), static_cast<uint32_t>(layers.size())};
      }
      format = mixture_format(*mixture_, place, model);
    }
    chosen.push_back(fit_to_width(format, tensor.ne[0]));
  }
  return chosen;
}

}  // namespace carat::model
