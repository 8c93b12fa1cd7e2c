#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quant/format.h"

namespace carat::model {

// The mixtures of types llama-quantize ships beside the pure ones: the rules by which some kinds of tensors, and some
// layers of a kind, get another type than the rest. They are those of llama.cpp's src/llama-quant.cpp of November 2026
// for models of this family, with an importance matrix where a rule asks for one, as published files have it.
struct Mixture {
  std::string_view name;
  uint32_t file_type;  // general.file_type
  quant::Format base;
};

std::span<const Mixture> mixtures();
const Mixture* find_mixture(std::string_view name);  // lower case; nullptr: none of this name

// What a rule may ask about a tensor.
struct MixtureTensor {
  std::string_view kind;  // what follows "blk.N.", or the whole name where there is no layer
  uint32_t ordinal;       // among the tensors of this kind, in the order of layers
  uint32_t count;         // tensors of this kind
};

struct MixtureModel {
  uint64_t query_heads_per_kv_head;  // of the first layer
  bool has_experts;
};

quant::Format mixture_format(const Mixture& mixture, const MixtureTensor& tensor, const MixtureModel& model);

}  // namespace carat::model
