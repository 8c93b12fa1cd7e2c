#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace carat::cli {

// How many columns of a terminal a code point takes: 0 for combining marks, format characters and controls, 2 for East
// Asian wide characters and emoji, else 1.
unsigned code_point_width(uint32_t code_point);

struct CodePoint {
  uint32_t value;  // U+FFFD for a byte that is no UTF-8
  size_t length;   // in bytes
};
// The one at the start of `text`, which must not be empty.
CodePoint first_code_point(std::string_view text);

// What must not be torn apart when a line is cut: a character with the marks, selectors and joined emoji after it.
struct TextUnit {
  std::string_view bytes;
  uint32_t code_point = 0;  // the first one
  unsigned columns = 0;
};

// The unit at the start of `text`, which must not be empty.
//
// Terminals disagree about sequences such as a family of four emoji: some draw one picture of two columns, some draw
// all of them. The width here is that of the parts, because too much room only leaves a gap and too little breaks the
// count of lines.
TextUnit first_unit(std::string_view text);

// The columns of a text without escape sequences; control characters take none.
size_t text_width(std::string_view text);

// The longest start of `text` that fits into `columns`, cut between units.
std::string_view cut_to_width(std::string_view text, size_t columns);

}  // namespace carat::cli
