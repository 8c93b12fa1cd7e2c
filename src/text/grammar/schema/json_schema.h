#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "text/grammar/grammar.h"

namespace carat::text::grammar {

// What of a schema's freedom a model gets.
enum class JsonStyle : uint8_t {
  kFree,    // members in any order, and also those that the schema allows without naming them
  kSchema,  // members in the schema's order, others only where it speaks of them; whole numbers without a point
};

// "free" and "schema". Throws kBadArgument for others, naming `flag`.
JsonStyle parse_json_style(std::string_view name, std::string_view flag);

// A grammar whose texts are JSON that is valid under the schema (draft 2020-12, and what older drafts write otherwise;
// what is covered: see docs/structured-output.md). It may be narrower than the schema, which Grammar::notes() says,
// never wider. Throws kBadArgument naming the keyword and its JSON pointer for what is no schema, what cannot be
// assured, and what no value can fulfil.
Grammar grammar_from_json_schema(std::string_view json, JsonStyle style = JsonStyle::kFree);

// The same for the arguments of a tool call, in the notation of calls (notation.h): the objects that are valid under
// the schema of a tool's parameters.
Grammar grammar_of_arguments(std::string_view json_schema);

// Any JSON value.
Grammar any_json_grammar();

// The keywords that say something about validity, each with the number of times it is there.
std::map<std::string, size_t> json_schema_keywords(std::string_view schema);

// Why a value is not valid under the schema, with its place and the keyword; empty where it is valid. Throws what
// grammar_from_json_schema() throws for what is no schema, and kBadArgument for a value that is no JSON.
std::string json_schema_violation(std::string_view schema, std::string_view value);

}  // namespace carat::text::grammar
