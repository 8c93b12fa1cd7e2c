#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/matcher.h"
#include "text/tools/callable_tool.h"

namespace carat::engine {

// Follows one call, from behind <|tool_call> to before <tool_call|>: "call:", the name of a tool, and arguments under
// its grammar.
class CallGuide {
 public:
  // Throws kBadArgument for tools that cannot be called. There must be one.
  explicit CallGuide(std::vector<text::CallableTool> tools);

  void begin();  // a call, the first or another one
  // Adds the tokens that may come next to a set of tokens, one bit each.
  void add_allowed(std::span<uint64_t> mask);
  // Throws std::logic_error for a token that is not allowed.
  void accept(text::TokenId token);
  bool is_complete() const { return is_in_arguments_ && arguments_->can_end(); }  // <tool_call|> may come next

 private:
  struct Candidate {
    text::CallableTool tool;
    std::string head;  // "call:NAME"
  };

  // Notes what is written of a head.
  void set_head(std::string head);

  std::vector<Candidate> candidates_;
  std::string head_;
  // Ready where the head is that of a tool, which may be the beginning of another one's.
  std::optional<text::grammar::GrammarMatcher> arguments_;
  bool is_in_arguments_ = false;
};

}  // namespace carat::engine
