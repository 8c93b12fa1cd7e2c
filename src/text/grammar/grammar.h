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
    kRepeat,       // one child, `min` to `max` times; `max` may be kUnbounded
    kRule,         // another rule
    kPermutation,  // members in any order: see PermutationMember
    kScope,        // one child, marked for those who follow a text: `min` is a Scope
    kNothing,      // matches no text at all
  };
  Kind kind = Kind::kNothing;
  uint16_t depth = 0;             // of expressions inside each other
  uint32_t first = 0, count = 0;  // of bytes, ranges or children; kRule: `first` is the rule
  uint32_t min = 0, max = 0;
  uint32_t flags = 0;  // kPermutation: of Grammar::member_flags, where those of its members begin
};

// What a part of a JSON text is, as far as a grammar cannot hold what is asked of it (json_checker.h).
enum class Scope : uint8_t {
  kValue = 1,       // a value inside of an array or object
  kUniqueItem = 2,  // the same, and different from the items before it
  kFreeName = 4,    // of a member that the schema does not name, with its colon: different from the names before it
};

// Of a member of a permutation.
inline constexpr uint8_t kRequiredMember = 1;  // comes once at least
inline constexpr uint8_t kSingleMember = 2;    // comes once at most

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
  // Whether texts are held to more than the rules say (Scope), and what stands around a string in them.
  bool has_checks() const { return has_checks_; }
  char string_quote() const { return string_quote_; }
  // What is narrower than what the grammar was made of, a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }
  const Expression& expression(ExpressionId id) const { return expressions_[id]; }
  std::string_view literal(const Expression& e) const { return std::string_view(bytes_).substr(e.first, e.count); }
  std::span<const CodePointRange> ranges(const Expression& e) const {
    return std::span(ranges_).subspan(e.first, e.count);
  }
  std::span<const ExpressionId> children(const Expression& e) const {
    return std::span(children_).subspan(e.first, e.count);
  }
  // Of a permutation, whose children are its n members as they come first, and then the same as they come behind
  // others.
  std::span<const uint8_t> member_flags(const Expression& e) const {
    return std::span(member_flags_).subspan(e.flags, e.count / 2);
  }

 private:
  friend class GrammarBuilder;

  std::vector<Rule> rules_;
  std::vector<Expression> expressions_;
  std::string bytes_;
  std::vector<CodePointRange> ranges_;  // of each set: sorted, apart, without surrogates
  std::vector<ExpressionId> children_;
  std::vector<uint8_t> member_flags_;
  std::vector<std::string> notes_;
  RuleId root_ = 0;
  bool has_checks_ = false;
  char string_quote_ = '"';
};

// Reads a grammar in llama.cpp's notation GBNF. Throws kBadArgument naming line and column.
Grammar parse_gbnf(std::string_view source);

}  // namespace carat::text::grammar
