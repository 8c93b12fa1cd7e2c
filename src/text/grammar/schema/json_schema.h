#pragma once

#include <string_view>

#include "text/grammar/grammar.h"

namespace carat::text::grammar {

// A grammar whose texts are JSON that is valid under the schema (draft 2020-12; what is covered: see
// docs/structured-output.md). It may be narrower than the schema, never wider. Throws kBadArgument naming the keyword
// and its JSON pointer for what is no schema, what cannot be assured, and what no value can fulfil.
Grammar grammar_from_json_schema(std::string_view json);

// The same for the arguments of a tool call, in the notation of calls (notation.h): the objects that are valid under
// the schema of a tool's parameters.
Grammar grammar_of_arguments(std::string_view json_schema);

// Any JSON value.
Grammar any_json_grammar();

}  // namespace carat::text::grammar
