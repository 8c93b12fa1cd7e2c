#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace carat::text::jinja {

// The place in a list of tokens; never moves past the last one, kEnd.
class Cursor {
 public:
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  int line() const { return peek().line; }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool take_operator(std::string_view text) { return peek().is_operator(text) && (next(), true); }
  bool take_name(std::string_view text) { return peek().is_name(text) && (next(), true); }
  // Throw when the next token is another; `what` says what should have been there.
  const Token& expect(TokenKind kind, std::string_view what);
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// Expressions with Jinja's precedence, loosest first: if-else, or, and, not, comparisons and `in`, + and -, ~,
// * / // %, signs, **, and on each value attributes, items, calls, filters and tests.
class ExpressionParser {
 public:
  ExpressionParser(Cursor& cursor, const Limits& limits) : cursor_(cursor), limits_(limits) {}

  ExpressionPtr parse();
  ExpressionPtr parse_without_condition() { return parse_or(); }
  // Several with commas between them make a list.
  ExpressionPtr parse_sequence();
  // `name(...) | name(...)` or `| name(...)`: filters on the text of a block, which is the variable "".
  ExpressionPtr parse_filters_of_block();

  // How often the variable `loop` has been met so far.
  size_t mentions_of_loop() const { return mentions_of_loop_; }

 private:
  // A guard against deep recursion while parsing.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > parser_.limits_.nesting) fail_at(parser_.cursor_.line(), "expressions nest too deeply");
    }
    ~Level() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };

  ExpressionPtr make(ExpressionKind kind, int line, std::vector<ExpressionPtr> operands = {}, std::string name = {},
                     std::vector<Argument> arguments = {});
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  bool take_comparison(std::string& name);
  // One level of left-associative operators.
  using Parse = ExpressionPtr (ExpressionParser::*)();
  ExpressionPtr parse_binary(std::initializer_list<std::string_view> operators, Parse operand);
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary();
  ExpressionPtr parse_sign();
  ExpressionPtr parse_primary();
  ExpressionPtr parse_number(const Token& token);
  ExpressionPtr parse_strings();
  ExpressionPtr parse_list();
  ExpressionPtr parse_map();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_brackets(ExpressionPtr operand);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr operand);
  ExpressionPtr parse_filter(ExpressionPtr operand);
  ExpressionPtr parse_test(ExpressionPtr operand);
  std::vector<Argument> parse_arguments();

  Cursor& cursor_;
  const Limits& limits_;
  uint32_t depth_ = 0;
  size_t mentions_of_loop_ = 0;
};

}  // namespace carat::text::jinja
