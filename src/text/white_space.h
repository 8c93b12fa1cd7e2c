#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace carat::text {

// White space as the template language knows it: what Python's str.isspace() is true for. Bytes that are no well-formed
// UTF-8 are never white space.
bool is_white_space(uint32_t code_point);

// How many bytes the first or last character of `text` has when it is white space; 0 when it is not.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

std::string_view trim_start(std::string_view text);
std::string_view trim_end(std::string_view text);
inline std::string_view trim(std::string_view text) { return trim_end(trim_start(text)); }

}  // namespace carat::text
