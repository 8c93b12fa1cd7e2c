#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carat::text::jinja {

enum class TokenKind {
  kText,             // outside of {...}; white space control is done
  kOpenStatement,    // {%
  kCloseStatement,   // %}
  kOpenExpression,   // {{
  kCloseExpression,  // }}
  kName,
  kString,  // the characters, escapes resolved
  kInteger,
  kFloat,
  kOperator,  // any punctuation, the longest that fits
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;

  bool is(TokenKind wanted, std::string_view wanted_text) const { return kind == wanted && text == wanted_text; }
  bool is_operator(std::string_view wanted) const { return is(TokenKind::kOperator, wanted); }
  bool is_name(std::string_view wanted) const { return is(TokenKind::kName, wanted); }
};

// The tokens of a template, the last of them kEnd. White space as the transformers library has it: the newline after a
// block goes, and so do the spaces between the start of a line and a block; {%- and -%} take all white space on their
// side. Throws kBadFile naming the line.
std::vector<Token> tokenize(std::string_view source);

// An Error about a template: "chat template, line 3: ...".
[[noreturn]] void fail_at(int line, const std::string& message);

}  // namespace carat::text::jinja
