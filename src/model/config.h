#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "model/recommended_sampling.h"

namespace carat::model {

inline constexpr std::string_view kArchitecture = "gemma4";
inline constexpr std::string_view kDrafterArchitecture = "gemma4-assistant";

// Limits on what metadata may claim: far above any published model, and low enough that products of two widths fit 64
// bits and the product of heads and head dimension fits 32.
inline constexpr uint32_t kMaxLayers = 512;
inline constexpr uint32_t kMaxWidth = 1u << 24;
inline constexpr uint32_t kMaxExperts = 4096;
inline constexpr uint32_t kMaxPositions = 1u << 30;

// What a file that lacks the key means (docs/gemma4.md 2.1).
inline constexpr float kDefaultRopeBase = 1e4f;
inline constexpr float kDefaultSoftcap = 30.0f;

// What one decoder layer is: everything an executor needs to know about it besides its weights.
struct Layer {
  uint32_t index = 0;
  bool sliding = false;    // sliding-window attention; otherwise global
  uint32_t H = 0;          // query heads
  uint32_t Hkv = 0;        // key/value heads
  uint32_t hd = 0;         // head dimension
  uint32_t F = 0;          // dense feed-forward width
  bool owns_kv = true;     // false: reads the cache of kv_source
  uint32_t kv_source = 0;  // == index when owns_kv; without meaning in a drafter, which reads its target's caches
  bool v_from_k = false;   // V is the raw K projection (no attn_v tensor)
  bool moe = false;
};

// Hyper-parameters of one file, read and checked against docs/gemma4.md 2.1; the letters are those of its
// conventions.
struct Config {
  std::string architecture;  // "gemma4", or "gemma4-assistant" for a drafter
  std::string name;
  uint32_t L = 0;  // layers
  uint32_t d = 0;  // hidden size
  uint32_t V = 0;  // vocabulary, from the embedding table
  uint32_t P = 0;  // per-layer embedding width, 0 when there is none
  uint32_t W = 0;  // sliding window
  uint32_t context_length = 0;
  uint32_t n_kv = 0;  // layers [0, n_kv) own keys and values; 0 in a drafter
  uint32_t experts = 0;
  uint32_t experts_used = 0;
  uint32_t F_expert = 0;
  float eps = 1e-6f;
  float softcap = kDefaultSoftcap;  // 0 disables
  float rope_base_global = 1e6f;
  float rope_base_sliding = 1e4f;
  std::vector<Layer> layers;
  RecommendedSampling sampling;
  // A drafter only: the hidden size of the model it drafts for.
  uint32_t d_target = 0;

  bool is_drafter() const { return d_target != 0; }
  bool has_per_layer_embeddings() const { return P > 0; }
  // 12B and above, which are prompted in another way (text/chat/chat_template.h). No key of a file says so: they are
  // the models without per-layer embeddings.
  bool is_large() const { return !has_per_layer_embeddings(); }
  float embedding_scale() const;  // sqrt(d)
};

// Throws kBadFile naming the file and the key, kUnsupported when the file holds another architecture. v_from_k and moe
// are decided by which tensors exist.
Config read_config(const gguf::ModelFile& file);

}  // namespace carat::model
