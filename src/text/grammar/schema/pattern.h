#pragma once

#include <cstdint>
#include <string_view>

#include "text/grammar/schema/json_parts.h"

namespace carat::text::grammar {

// The JSON strings that match a regular expression of JavaScript with the flag u, as JSON Schema has it: the pattern
// may match anywhere unless it is anchored. Understood are characters, escapes, classes, groups, alternatives,
// quantifiers, and ^ and $ at the ends of the whole pattern's alternatives. Throws kBadArgument, with `place` in the
// message, for anything else, and when the pattern does not show how it could be kept to `min_length` to `max_length`
// characters.
ExpressionId string_matching(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern, uint32_t min_length,
                             uint32_t max_length, std::string_view place);

// The same without the quotes around it.
ExpressionId characters_matching(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern,
                                 uint32_t min_length, uint32_t max_length, std::string_view place);

}  // namespace carat::text::grammar
