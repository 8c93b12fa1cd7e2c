#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/format.h"

namespace carat::model {

struct Mixture;

// A tensor of a file before its format is chosen; ne as in GGUF (ne[0] runs fastest), without trailing ones.
struct TensorShape {
  std::string name;
  std::vector<uint64_t> ne;

  uint64_t elements() const;
};

// Which format each tensor of a file gets (docs/gemma4.md 2.2, "Types seen in practice"). Vectors, norms, scales and
// the router are F32 in every recipe.
//   f32, f16, bf16          every matrix in that type, as a converter writes it
//   q8_0, q4_0              what llama-quantize ships: per_layer_model_proj BF16; the embedding tables and the LM head
//                           Q6_K except in q8_0
//   q4_k_m, iq4_xs, ...     its mixtures (mixture.h), with more bits for some kinds of tensors and some layers
//   <type>-pure             every matrix in that type, the tables included
// A row whose width is no multiple of the format's block falls back: Q4_K to Q5_0, Q5_K to Q5_1, Q6_K to Q8_0, Q2_K,
// Q3_K and ternary types to Q4_0, the IQ types to IQ4_NL, and F16 where even blocks of 32 do not fit.
class Recipe {
 public:
  // Case-insensitive; throws kBadArgument listing the known names.
  static Recipe parse(std::string_view name);
  // Every name parse() accepts, for messages and help.
  static std::vector<std::string> names();

  const std::string& name() const { return name_; }
  uint32_t file_type() const { return file_type_; }  // general.file_type, as llama.cpp numbers mixtures

  // In shipped mixtures llama-quantize leaves per_layer_model_proj in whichever float type the converter wrote.
  bool keeps_float_type(std::string_view name) const;

  // One format per tensor. A pure function of the names and shapes of all of them, because mixtures count layers.
  std::vector<quant::Format> formats(std::span<const TensorShape> tensors) const;

 private:
  enum class Kind { kPure, kShipped, kMixture };

  std::string name_;
  quant::Format base_ = quant::Format::kF32;
  Kind kind_ = Kind::kPure;
  const Mixture* mixture_ = nullptr;
  uint32_t file_type_ = 0;
};

// The format itself where rows of `width` elements fit its block, otherwise what llama-quantize falls back to.
quant::Format fit_to_width(quant::Format format, uint64_t width);

}  // namespace carat::model
