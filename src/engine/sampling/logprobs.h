#pragma once

#include <cstdint>
#include <vector>

#include "exec/executor.h"
#include "text/tokenizer/vocab.h"

namespace carat::engine {

struct TokenLogprob {
  text::TokenId token;
  float logprob;  // natural logarithm of its probability
};

// How probable a chosen token was, and what else was.
struct ChoiceLogprobs {
  float chosen = 0.0f;
  // The most probable tokens, the chosen one among them where it is one of these; equal ones by lower token id.
  std::vector<TokenLogprob> top;
};

// By what the model says: before bias, penalties, temperature and truncation, and whatever a guide allows.
ChoiceLogprobs logprobs_of(exec::Executor& executor, uint32_t output, text::TokenId chosen, uint32_t alternatives);

}  // namespace carat::engine
