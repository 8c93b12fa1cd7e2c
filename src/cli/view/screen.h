#pragma once

#include <string_view>

namespace carat::cli {

// --color auto|always|never
enum class ColourChoice { kAuto, kAlways, kNever };

// Throws kBadArgument naming the flag and its words.
ColourChoice parse_colour_choice(std::string_view word);

// What the views may do with the stream they write to, and how much room there is. Small; passed and kept by value.
struct Screen {
  bool is_terminal = false;      // someone looks at it: text of the model is sanitised
  bool can_move_cursor = false;  // lines can be rewritten in place; not on TERM=dumb
  bool colour = false;           // styles may be used

  // Asked each time, so that a resized window just works: the terminal itself, then COLUMNS and LINES, then 80 by 24.
  unsigned columns() const;
  unsigned rows() const;

  // The screen of an open file descriptor, with NO_COLOR and TERM considered.
  static Screen of(int descriptor, ColourChoice choice);
  // A terminal of a size that does not change.
  static Screen of_size(unsigned columns, unsigned rows, bool colour);

 private:
  int descriptor_ = -1;
  unsigned fixed_columns_ = 0;
  unsigned fixed_rows_ = 0;
};

}  // namespace carat::cli
