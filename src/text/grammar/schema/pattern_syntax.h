#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"

namespace carat::text::grammar {

// A part of a regular expression.
struct PatternNode {
  enum class Kind : uint8_t {
    kSet,       // one character of `set`
    kSequence,  // the children one after another
    kChoice,    // one of the children
    kRepeat,    // the only child, `min` to `max` times
    kStart,     // ^
    kEnd,       // $
    kAhead,     // (?=...) and, `negated`, (?!...): the only child
  };
  Kind kind = Kind::kSequence;
  std::vector<CodePointRange> set = {};
  std::vector<PatternNode> children = {};
  uint32_t min = 0, max = 0;
  bool negated = false;
};

// Reads a regular expression of JavaScript with the flag u: characters, escapes, classes, groups, alternatives,
// quantifiers, ^, $ and look-ahead. The root is a choice of sequences. Throws kBadArgument, with `place` in the
// message, for anything else.
PatternNode parse_pattern(std::string_view pattern, std::string_view place);

}  // namespace carat::text::grammar
