#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carat::text::grammar {

using ExpressionId = uint32_t;
using RuleId = uint32_t;

inline constexpr uint32_t kUnbounded = UINT32_MAX;

struct CodePointRange {
  uint32_t first, last;  // both included
  bool operator==(const CodePointRange&) const = default;
};

// A part of a rule. What it refers to is kept by its Grammar.
struct Expression {
  enum class Kind : uint8_t {
    kLiteral,     // these bytes; the empty literal matches the empty text
    kCharacters,  // one code point of a set, in UTF-8
    kSequence,
    kChoice,
    kRepeat,   // one child, `min` to `max` times; `max` may be kUnbounded
    kRule,     // another rule
    kNothing,  // matches no text at all
  };
  Kind kind = Kind::kNothing;
  uint16_t depth = 0;             // of expressions inside each other
  uint32_t first = 0, count = 0;  // of bytes, ranges or children; kRule: `first` is the rule
  uint32_t min = 0, max = 0;
};

struct Rule {
  std::string name;
  std::string place;  // where it comes from, for messages: "grammar, line 3, column 1"
  ExpressionId body = 0;
};

// A context-free grammar over UTF-8 text: no left recursion, and some text can be derived from its root. Immutable;
// made by a GrammarBuilder.
class Grammar {
 public:
  const std::vector<Rule>& rules() const { return rules_; }
  RuleId root() const { return root_; }
  const Expression& expression(ExpressionId id) const { return expressions_[id]; }
  std::string_view literal(const Expression& e) const { return std::string_view(bytes_).substr(e.first, e.count); }
  std::span<const CodePointRange> ranges(const Expression& e) const {
    return std::span(ranges_).subspan(e.first, e.count);
  }
  std::span<const ExpressionId> children(const Expression& e) const {
    return std::span(children_).subspan(e.first, e.count);
  }

 private:
  friend class GrammarBuilder;

  std::vector<Rule> rules_;
  std::vector<Expression> expressions_;
  std::string bytes_;
  std::vector<CodePointRange> ranges_;  // of each set: sorted, apart, without surrogates
  std::vector<ExpressionId> children_;
  RuleId root_ = 0;
};

// Reads a grammar in llama.cpp's notation GBNF. Throws kBadArgument naming line and column.
Grammar parse_gbnf(std::string_view source);

}  // namespace carat::text::grammar
