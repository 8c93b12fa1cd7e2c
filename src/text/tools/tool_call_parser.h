#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carat::text {

// In the text of a call this byte, which no UTF-8 contains, stands for the string delimiter <|"|>: the token, not a
// user's seven characters.
constexpr char kStringDelimiter = '\xff';

// Whether a call can have this name.
bool is_call_name(std::string_view name);

struct ParsedCall {
  std::string name;
  std::string arguments;  // JSON text of an object
};

struct ParsedCalls {
  std::vector<ParsedCall> calls;
  std::string problem;  // why there are none; empty when there are
};

// Reads what stands between <|tool_call> and <tool_call|>: call:NAME{key:VALUE,...} (docs/gemma4.md 5.5), into JSON.
// Models deviate, so beyond the exact grammar it understands = for :, keys and strings in ordinary quotes or without
// any, delimiters missing on either side or doubled, missing commas and closing brackets, Python's True, False and
// None, several calls in one block, and {"name": ..., "arguments": {...}}. What is exact is never read in another way,
// but for keys with = in them. Time is linear.
ParsedCalls parse_tool_calls(std::string_view text);

}  // namespace carat::text
