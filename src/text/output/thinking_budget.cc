#include "text/output/thinking_budget.h"

#include "base/error.h"

namespace carat::text {

namespace {

// Ends whatever sentence the model was in without contradicting it.
constexpr std::string_view kLastWords = "\n\nThat is enough thought; now the answer.\n";

}  // namespace

ThinkingBudget::ThinkingBudget(const Tokenizer& tokenizer, uint64_t tokens, bool in_thought)
    : tokens_(tokens), in_thought_(in_thought), is_named_(in_thought), marks_(tokenizer.vocab()) {
  const TokenId close = marks_[Mark::kThoughtClose];
  if (marks_[Mark::kThoughtOpen] < 0 || close < 0) {
    fail(ErrorCode::kUnsupported, "the vocabulary has no thought channel, so there is no budget for it");
  }
  tokenizer.encode(kLastWords, Tokenizer::Specials::kPlainText, closing_);
  closing_.push_back(close);
  // A channel without its name and an end of line would be unlike anything the model has seen.
  tokenizer.encode("thought\n", Tokenizer::Specials::kPlainText, close_at_once_);
  close_at_once_.push_back(close);
}

std::span<const TokenId> ThinkingBudget::append(TokenId token) {
  const auto mark = marks_.mark_of(token);
  if (mark == Mark::kThoughtOpen) {
    in_thought_ = true;
    is_named_ = false;
    if (!is_over()) return {};
    is_closing_ = true;
    return close_at_once_;
  }
  if (mark && mark != Mark::kQuote) {  // a call or the end of the turn ends a thought, too
    in_thought_ = is_closing_ = false;
    return {};
  }
  if (!in_thought_ || is_closing_) return {};
  is_named_ = true;
  ++used_;
  if (!is_over()) return {};
  is_closing_ = true;
  return closing_;
}

std::span<const TokenId> ThinkingBudget::end() {
  is_ended_ = true;
  if (!in_thought_ || is_closing_) return {};
  is_closing_ = true;
  return is_named_ ? closing_ : close_at_once_;
}

}  // namespace carat::text
