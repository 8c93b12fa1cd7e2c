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
// point, which every reader keeps.
class JsonParts {
 public:
  explicit JsonParts(GrammarBuilder& builder, Notation notation = Notation::kJson)
      : builder_(builder), notation_(notation) {}

  Notation notation() const { return notation_; }

  ExpressionId value();   // anything
  ExpressionId object();  // any members
  ExpressionId array();   // any items
  ExpressionId string();
  ExpressionId string_of_length(uint32_t min, uint32_t max);
  ExpressionId number();
  ExpressionId integer();
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

  // The numbers v / 10^decimals with low <= v <= high, without exponents. |low|, |high| < 10^15.
  ExpressionId numbers_between(int64_t low, int64_t high, int decimals);
  // The multiples of `factor` (at most 100) among the integers.
  ExpressionId multiples_of(uint32_t factor);

 private:
  ExpressionId digits(uint32_t min, uint32_t max) {
    return builder_.repeat(builder_.characters({{'0', '9'}}), min, max);
  }
  ExpressionId rest_of_key(const std::vector<std::string>& names, size_t at);

  GrammarBuilder& builder_;
  Notation notation_;
  std::optional<RuleId> value_, string_, character_;
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, RuleId> sets_;
};

}  // namespace carat::text::grammar
