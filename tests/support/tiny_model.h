#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "quant/format.h"
#include "support/gguf_draft.h"

namespace carat::test {

// The five members of the family, in dimensions so small that the reference executor runs a token in no time.
enum class TinyKind { kE2B, kE4B, k12B, k26B, k31B };
inline constexpr std::array kTinyKinds = {TinyKind::kE2B, TinyKind::kE4B, TinyKind::k12B, TinyKind::k26B,
                                          TinyKind::k31B};
std::string_view tiny_name(TinyKind kind);  // "e2b", ...
inline std::ostream& operator<<(std::ostream& out, TinyKind kind) { return out << tiny_name(kind); }
// The same as the name of a test whose parameter is the kind.
inline constexpr auto tiny_test_name = [](const auto& test) { return std::string(tiny_name(test.param)); };

// Everything that decides the shape of a tiny model; a test may change any of it before drafting.
struct TinyShape {
  std::string name;
  uint32_t L = 6, period = 3;  // layers; one global layer after period - 1 sliding ones
  uint32_t d = 64;
  uint32_t H = 4, Hkv_sliding = 2, Hkv_global = 2;
  uint32_t hd_sliding = 16, hd_global = 32;
  uint32_t F = 96, F_shared = 96;  // feed-forward width of owners and of layers that share a cache
  uint32_t shared = 0;             // layers at the end without keys and values
  uint32_t P = 0;
  uint32_t W = 8;
  uint32_t context = 512;
  uint32_t experts = 0, experts_used = 0, F_expert = 0;
  bool v_from_k = false;         // on global layers
  bool dead_kv = false;          // shared layers carry unused K/V tensors
  bool fused_experts = true;     // ffn_gate_up_exps, otherwise two tensors
  bool separate_output = false;  // output.weight besides token_embd
  float softcap = 30.0f;

  bool sliding(uint32_t layer) const { return layer % period != period - 1; }
};

// widths: 16 for the smallest dimensions, 32 or 256 to make every input width of a matrix a multiple of that, as the
// quantised formats need.
TinyShape tiny_shape(TinyKind kind, uint32_t widths = 16);

// A model with random weights (the same for the same seed) and a small vocabulary of the real kind: special tokens, all
// byte tokens, ASCII, a few merges. Matrices are in `format` where their width is a multiple of its block, in F32
// otherwise; vectors and the router are F32.
GgufDraft tiny_draft(const TinyShape& shape, quant::Format format = quant::Format::kF32, uint64_t seed = 1);

// A drafter (gemma4-assistant) for a model of that shape.
GgufDraft tiny_drafter_draft(const TinyShape& target, uint64_t seed = 1);

// Writes a draft to a temporary file, loads it and removes the file; the mapping stays.
std::shared_ptr<const model::Model> load_draft(const GgufDraft& draft);
std::shared_ptr<const model::Model> tiny_model(TinyKind kind, uint32_t widths = 16,
                                               quant::Format format = quant::Format::kF32, uint64_t seed = 1);
// The same model with every product 32,768 times as large that a norm follows, beyond what fp16 holds: queries, keys,
// values, the input of the down product, the results of attention, feed-forward and per-layer embeddings. Its weights
// are not, and its logits are nearly the same.
std::shared_ptr<const model::Model> tiny_model_of_large_values(TinyKind kind, uint32_t widths, quant::Format format);

}  // namespace carat::test
