#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace carat::model {

// Elements and stored bytes of a group of tensors.
struct Count {
  uint64_t elements = 0;
  uint64_t bytes = 0;

  Count& operator+=(const Count& other) {
    elements += other.elements;
    bytes += other.bytes;
    return *this;
  }
  friend Count operator+(Count a, const Count& b) { return a += b; }
};

struct CensusTensor {
  std::string_view name;
  Count count;
};

// What is in a model file and how much of it one generated token reads: the rows of docs/gemma4.md 9.
struct Census {
  uint64_t tensors = 0;
  Count block_matrices;     // attention, feed-forward, per-layer gates, router, all experts
  Count active_matrices;    // the part of them one token passes through
  Count input_projections;  // per_layer_model_proj; a drafter's pre and post projections
  Count vectors;            // norms, scales, the rope table
  Count embedding;          // token_embd
  Count head;               // output.weight; nothing when it is tied to token_embd
  Count per_layer_table;    // per_layer_token_embd
  Count unused_kv;          // K and V tensors of layers that read another layer's cache
  Count other;              // not part of the text model

  Count live_without_tables() const { return block_matrices + input_projections + vectors; }
  Count total() const { return live_without_tables() + embedding + head + per_layer_table + unused_kv + other; }
  // Weights read for one token at batch 1: active matrices, input projections and the LM head. Norms, the rows gathered
  // from the tables and the cache are not counted.
  Count read_per_token() const { return active_matrices + input_projections + (head.elements > 0 ? head : embedding); }
};

// n_kv: layers from there on own no keys and values. experts 0: no mixture.
Census take_census(std::span<const CensusTensor> tensors, uint32_t n_kv, uint32_t experts, uint32_t experts_used);

}  // namespace carat::model
