#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "text/tokenizer/vocab.h"

namespace carat::engine {

// Steers the output of one sequence: which tokens may come next, and which one comes whatever the model says. One
// object per sequence.
class Guide {
 public:
  virtual ~Guide() = default;

  // The next token in the model's place; none: the model chooses.
  virtual std::optional<text::TokenId> forced() = 0;
  // What the model may choose from, one bit per token of the vocabulary, token 0 the lowest bit of the first word.
  // Empty: everything. Valid until the next call. Asked only where nothing is forced.
  virtual std::span<const uint64_t> allowed() = 0;
  // Every token of the output in order, chosen or forced; also the stop token that ends it.
  virtual void accept(text::TokenId token) = 0;
};

}  // namespace carat::engine
