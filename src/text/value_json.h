#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/value.h"

namespace carat::text {

// The value of a JSON text; its strings count as written by the template or not. Keeps the order of keys and integers
// of any length. Throws kBadArgument, with `what` naming the text, for what is no JSON or nests deeper than a Value
// may.
Value parse_json(std::string_view json, bool from_template, std::string_view what);

struct JsonStyle {
  std::optional<int64_t> indent = {};  // spaces for each level; none: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};

// The text json.dumps writes. Undefined becomes null; functions and namespaces throw kBadArgument.
std::string to_json(const Value& value, const JsonStyle& style = {});
// The text with no spaces, as APIs send it.
std::string to_compact_json(const Value& value);
void append_json_string(std::string_view text, bool ensure_ascii, std::string& out);

}  // namespace carat::text
