#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"

namespace carat::text::grammar {

// Sorted, apart, without surrogates and what is beyond U+10FFFF: the form of a set of characters.
std::vector<CodePointRange> normalised(std::vector<CodePointRange> ranges);
// All characters that are not in `ranges`, which are normalised.
std::vector<CodePointRange> complement(const std::vector<CodePointRange>& ranges);
// The characters of both.
std::vector<CodePointRange> intersection(const std::vector<CodePointRange>& a, const std::vector<CodePointRange>& b);

void append_utf8(uint32_t code_point, std::string& out);

// Puts a Grammar together from the leaves up. Parts that match nothing are removed on the way: a sequence with such a
// part matches nothing, a choice drops it. Throws kBadArgument when the grammar gets too large.
class GrammarBuilder {
 public:
  ExpressionId nothing() { return add({}); }
  ExpressionId empty() { return literal(""); }
  ExpressionId literal(std::string_view bytes);
  ExpressionId characters(std::vector<CodePointRange> ranges);
  ExpressionId sequence(const std::vector<ExpressionId>& parts);
  ExpressionId choice(const std::vector<ExpressionId>& alternatives);
  ExpressionId repeat(ExpressionId part, uint32_t min, uint32_t max);
  ExpressionId optional(ExpressionId part) { return repeat(part, 0, 1); }
  ExpressionId call(RuleId rule);
  ExpressionId scope(Scope scope, ExpressionId part);

  struct Member {
    ExpressionId text = 0;
    bool required = false;
    bool single = true;  // comes once at most
  };
  // Members in any order with `separator` between them, `min` to `max` of them.
  ExpressionId permutation(const std::vector<Member>& members, ExpressionId separator, uint32_t min, uint32_t max);

  void set_string_quote(char quote) { grammar_.string_quote_ = quote; }
  void add_note(std::string note);
  size_t note_count() const { return grammar_.notes_.size(); }

  // A rule is declared before its body exists, so that rules can refer to each other.
  RuleId declare(std::string name, std::string place);
  void define(RuleId rule, ExpressionId body) { grammar_.rules_[rule].body = body; }

  bool is_nothing(ExpressionId id) const { return kind(id) == Expression::Kind::kNothing; }
  bool is_empty(ExpressionId id) const {
    return kind(id) == Expression::Kind::kLiteral && grammar_.expressions_[id].count == 0;
  }
  size_t rule_count() const { return grammar_.rules_.size(); }

  // All rules must be defined by now. Throws kBadArgument, naming a rule's place, for left recursion and when no text
  // fits the grammar.
  Grammar finish(RuleId root);
  const Grammar& unfinished() const { return grammar_; }

 private:
  Expression::Kind kind(ExpressionId id) const { return grammar_.expressions_[id].kind; }
  ExpressionId add(Expression expression);
  ExpressionId add_with_children(Expression expression, const std::vector<ExpressionId>& children);

  Grammar grammar_;
};

}  // namespace carat::text::grammar
