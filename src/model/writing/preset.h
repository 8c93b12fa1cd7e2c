#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carat::model {

// The numbers that make up one member of the family (docs/gemma4.md 1), enough to write a file of that shape. The tiny
// variants have every structural feature of their namesake (pattern, sharing, V from K, experts, widths that are or are
// not multiples of 256) and the real head dimensions, but little else, so that a test runs them in milliseconds.
struct Preset {
  std::string_view name;
  uint32_t L, n_kv;  // layers; layers [0, n_kv) own keys and values
  uint32_t period;   // one global layer after period - 1 sliding ones
  uint32_t d;
  uint32_t H, Hkv_sliding, Hkv_global;
  uint32_t hd_sliding, hd_global;
  uint32_t F, F_shared;  // feed-forward width of layers below n_kv, and from there on
  uint32_t W, P, V, context;
  uint32_t experts = 0, experts_used = 0, F_expert = 0;
  bool v_from_k = false;   // global layers have no attn_v
  bool unused_kv = false;  // shared layers still carry attn_k, attn_v, attn_k_norm, as the first E2B/E4B files do
  bool suppresses_media_ends = false;  // tokenizer.ggml.suppress_tokens, as the 12B has

  // Counted backwards from the last layer of the owners and of the sharers alike, so both parts end with a global
  // layer: exactly the shipped patterns, and a valid one for any number of layers.
  bool is_sliding(uint32_t layer) const;
  bool owns_kv(uint32_t layer) const { return layer < n_kv; }
  bool has_kv_tensors(uint32_t layer) const { return owns_kv(layer) || unused_kv; }
  uint32_t heads_kv(uint32_t layer) const { return is_sliding(layer) ? Hkv_sliding : Hkv_global; }
  uint32_t head_dim(uint32_t layer) const { return is_sliding(layer) ? hd_sliding : hd_global; }
  uint32_t feed_forward(uint32_t layer) const { return owns_kv(layer) ? F : F_shared; }

  // Fewer layers, the same share of them with a cache of their own. Throws kBadArgument below 2 or above L.
  void shorten(uint32_t layers);
};

// Throws kBadArgument listing the known names.
Preset find_preset(std::string_view name);
std::vector<std::string> preset_names();

}  // namespace carat::model
