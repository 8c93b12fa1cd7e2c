#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/chat/marks.h"
#include "text/tokenizer/tokenizer.h"

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

  // Ends thoughts from now on, as if the budget were spent: the tokens to continue with, empty unless a thought is open
  // that is not being ended yet.
  std::span<const TokenId> end();

  uint64_t used() const { return used_; }
  bool is_spent() const { return used_ >= tokens_; }

 private:
  bool is_over() const { return is_ended_ || is_spent(); }

  uint64_t tokens_;
  uint64_t used_ = 0;
  bool in_thought_;
  bool is_named_;            // more than the opening mark of the channel was written
  bool is_ended_ = false;    // by end()
  bool is_closing_ = false;  // our own tokens are passing by
  MarkTokens marks_;
  std::vector<TokenId> closing_;  // a sentence and <channel|>
  std::vector<TokenId> close_at_once_;
};

}  // namespace carat::text
