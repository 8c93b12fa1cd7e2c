#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/grammar/schema/json_parts.h"
#include "text/grammar/schema/text_set.h"

namespace carat::text::grammar {

// The characters of a string that match a regular expression of JavaScript with the flag u, as JSON Schema has it: the
// pattern may match anywhere unless it is anchored. Throws kBadArgument, with `place` in the message, for what is no
// pattern, and for one that takes too many states together with `min_length` and `max_length`.
ExpressionId characters_matching(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern,
                                 uint32_t min_length, uint32_t max_length, std::string_view place);

// The characters of a string of the set.
ExpressionId expression_of(GrammarBuilder& builder, JsonParts& parts, const TextSet& set, const std::string& place);

}  // namespace carat::text::grammar
