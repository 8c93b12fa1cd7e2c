#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace carat::text {

// Counts the tokens a model thinks and says how to end a thought when there have been enough: the tokens to continue
// with in the model's place, which round the thought off and close its channel, so that an answer follows.
class ThinkingBudget {
 public:
  // tokens: how many may be thought in one answer; in_thought: the prompt has opened the channel already. Throws
  // kUnsupported for a vocabulary without thought channels.
  ThinkingBudget(const Tokenizer& tokenizer, uint64_t tokens, bool in_thought);

  // The next token of the answer, the model's own or one of ours. What is returned must replace the model's next
  // tokens; it is empty unless the budget is spent with this token, and again for a channel that is opened later.
  std::span<const TokenId> append(TokenId token);

  uint64_t used() const { return used_; }
  bool is_spent() const { return used_ >= tokens_; }

 private:
  uint64_t tokens_;
  uint64_t used_ = 0;
  bool in_thought_;
  bool is_closing_ = false;  // our own tokens are passing by
  TokenId open_, close_;
  std::vector<TokenId> closing_;  // a sentence and <channel|>
  std::vector<TokenId> close_at_once_;
};

}  // namespace carat::text
