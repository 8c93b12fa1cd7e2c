#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "text/grammar/compiled_grammar.h"
#include "text/grammar/json_checker.h"
#include "text/grammar/limits.h"
#include "text/grammar/state_table.h"
#include "text/grammar/token_mask.h"

namespace carat::text::grammar {

// Follows one output, token by token, and says what may come next. Every token it allows leads to a text that can be
// completed, so there is always one. Not for several threads; copies are independent of each other.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar, uint64_t max_work = kMaxWork);
  GrammarMatcher(const GrammarMatcher& other);
  GrammarMatcher(GrammarMatcher&&) noexcept = default;
  GrammarMatcher& operator=(GrammarMatcher other) noexcept;

  // The tokens that may come next; the stops are among them exactly when the text so far is complete, and nothing is
  // after a stop. Valid until the next call of anything that is not const. Throws kBadArgument when the grammar turns
  // out to be so ambiguous that following it takes too long.
  const TokenMask& allowed();
  // Throws std::logic_error for a token that is not allowed, and what allowed() throws; nothing has changed then.
  void accept(TokenId token);

  bool can_end() const { return !finished_ && table_->at_bottom(state_); }     // a stop may come next
  bool must_end() const { return !finished_ && table_->only_bottom(state_); }  // only a stop may come next
  bool finished() const { return finished_; }                                  // a stop has come

 private:
  void make_room();
  void fill_mask(StateId state, TokenMask& mask);
  const TokenMask& narrowed(const TokenMask& mask);

  std::shared_ptr<const CompiledGrammar> grammar_;
  uint64_t max_work_;  // for one call
  std::unique_ptr<StateTable> table_;
  std::unordered_map<StateId, TokenMask> masks_;
  StateId state_;
  TokenMask none_;
  std::optional<JsonChecker> checker_;  // where the grammar asks for what it cannot hold
  TokenMask narrowed_;
  bool finished_ = false;
};

}  // namespace carat::text::grammar
