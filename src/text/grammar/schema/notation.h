#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"

namespace carat::text::grammar {

using Json = nlohmann::ordered_json;

// How values are written.
enum class Notation : uint8_t {
  kJson,
  // The arguments of a tool call (docs/gemma4.md 5.5): strings between delimiters and without escapes, keys without
  // quotes and sorted without regard to case. The delimiter is the byte kStringDelimiter (tool_call_parser.h).
  kToolCall,
};

// What stands on both sides of a string.
char string_quote(Notation notation);
// What a string holds as it is. Everything else is escaped in JSON; a string of a call holds all there is.
const std::vector<CodePointRange>& plain_characters(Notation notation);
// What the key of a member that no schema names is made of: what can be written plainly.
const std::vector<CodePointRange>& key_characters(Notation notation);

// nullopt where it cannot be written so that a reader gets the same back: a key of a call cannot be empty, nor begin or
// end with white space.
std::optional<std::string> written_key(Notation notation, std::string_view name);
std::optional<std::string> written_value(Notation notation, const Json& value);

// The order in which the members of an object are written.
void sort_keys(Notation notation, std::vector<std::string>& names);

}  // namespace carat::text::grammar
