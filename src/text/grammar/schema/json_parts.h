#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar_builder.h"
#include "text/grammar/schema/notation.h"

namespace carat::text::grammar {

// The pieces of JSON texts, and of the same values in another notation. White space is at most one space after a comma
// or colon of JSON, so that a model cannot lose itself in it; numbers have at most 15 digits before and after the
// point, which every reader keeps. Canonical texts are equal where their values are, but for that space: each number
// and string is written in one way, and objects have at most one member that is not named.
class JsonParts {
 public:
  // `plain`: whole numbers are digits only, never 1.0 or 1e3.
  explicit JsonParts(GrammarBuilder& builder, Notation notation = Notation::kJson, bool canonical = false,
                     bool plain = false)
      : builder_(builder),
        notation_(notation),
        canonical_(canonical),
        plain_(plain || canonical || notation != Notation::kJson) {}

  Notation notation() const { return notation_; }

  ExpressionId value();   // anything
  ExpressionId object();  // any members
  ExpressionId array();   // any items
  ExpressionId string();
  ExpressionId string_of_length(uint32_t min, uint32_t max);
  ExpressionId number();
  ExpressionId integer();
  ExpressionId fraction();  // numbers that are not whole
  ExpressionId boolean();
  ExpressionId null() { return builder_.literal("null"); }
  ExpressionId comma();
  ExpressionId colon();
  ExpressionId quoted(ExpressionId content);
  // This key and this value; nothing where the notation cannot express them.
  ExpressionId key(std::string_view name);
  ExpressionId constant(const Json& value);

  // One character of a string, as it is written inside of the quotes.
  ExpressionId character();
  ExpressionId character_of(const std::vector<CodePointRange>& set);

  // A string without escapes that is none of `names`: the key of a member that is not named in a schema.
  ExpressionId key_other_than(std::vector<std::string> names);

  // The numbers v / 10^decimals with low <= v <= high and v a multiple of `modulus`, without exponents. |low|, |high| <
  // 10^15. `broken`: those that are not whole, which have a last digit other than 0.
  ExpressionId numbers_between(int64_t low, int64_t high, int decimals, uint32_t modulus = 1, bool broken = false);

 private:
  // What floating point tells apart: 15 digits in all.
  static constexpr uint32_t kFractionDigits = 7;
  static constexpr uint32_t kCanonicalDigits = 9, kCanonicalDecimals = 6;

  ExpressionId digits(uint32_t min, uint32_t max) {
    return builder_.repeat(builder_.characters({{'0', '9'}}), min, max);
  }
  ExpressionId constant_number(const Json& value);
  ExpressionId constant_object(const Json& value);
  ExpressionId not_whole_numbers(bool may_be_whole);
  ExpressionId rest_of_key(const std::vector<std::string>& names, size_t at);

  GrammarBuilder& builder_;
  Notation notation_;
  bool canonical_;
  bool plain_;
  std::optional<RuleId> value_, string_, character_;
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, RuleId> sets_;
};

}  // namespace carat::text::grammar
