#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace carat {

// Length (1 to 4) of the well-formed UTF-8 sequence at the start of `text`, or 0 when the first byte does not start one
// (stray continuation byte, overlong form, surrogate, beyond U+10FFFF, or cut off). `text` must not be empty.
size_t utf8_sequence_length(std::string_view text);

// How many bytes at the end of `text` are the start of a well-formed sequence that is not complete yet (0 to 3).
size_t utf8_incomplete_suffix(std::string_view text);

// Replaces every byte that is part of no well-formed sequence by U+FFFD.
std::string utf8_sanitise(std::string_view text);

}  // namespace carat
