#pragma once

#include <string_view>

#include "text/grammar/grammar.h"

namespace carat::text::grammar {

// The texts that match a regular expression from their beginning to their end, whether or not it is anchored; of what
// pattern.h understands. Throws kBadArgument naming what it does not.
Grammar grammar_from_regex(std::string_view regex);

}  // namespace carat::text::grammar
