#include "text/thinking_budget.h"

#include "base/error.h"

namespace carat::text {

namespace {

// Ends whatever sentence the model was in without contradicting it.
constexpr std::string_view kLastWords = "\n\nThat is enough thought; now the answer.\n";

}  // namespace

ThinkingBudget::ThinkingBudget(const Tokenizer& tokenizer, uint64_t tokens, bool in_thought)
    : tokens_(tokens), in_thought_(in_thought) {
  const auto open = tokenizer.vocab().find("<|channel>");
  const auto close = tokenizer.vocab().find("<channel|>");
  if (!open || !close)
    fail(ErrorCode::kUnsupported, "the vocabulary has no thought channel, so there is no budget for it");
  open_ = *open;
  close_ = *close;
  tokenizer.encode(kLastWords, Tokenizer::Specials::kPlainText, closing_);
  closing_.push_back(close_);
  // A channel without its name and an end of line would be unlike anything the model has seen.
  tokenizer.encode("thought\n", Tokenizer::Specials::kPlainText, close_at_once_);
  close_at_once_.push_back(close_);
}

std::span<const TokenId> ThinkingBudget::append(TokenId token) {
  if (token == close_) {
    in_thought_ = is_closing_ = false;
    return {};
  }
  if (token == open_) {
    in_thought_ = true;
    if (!is_spent()) return {};
    is_closing_ = true;
    return close_at_once_;
  }
  if (!in_thought_ || is_closing_) return {};
  ++used_;
  if (!is_spent()) return {};
  is_closing_ = true;
  return closing_;
}

}  // namespace carat::text
