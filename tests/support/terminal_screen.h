#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace carat::test {

// A terminal as far as carat's output needs one: what a person would see after some bytes, with everything that has
// scrolled off the top. Widths of characters come from the C library. It knows newline, CR, styles, cursor up and
// erasing to the end of the line; anything else throws std::runtime_error, so that tests notice what they do not
// expect.
class TerminalScreen {
 public:
  TerminalScreen(size_t columns, size_t rows);

  void write(std::string_view bytes);

  // All lines from the first one ever written to the cursor's or the last one with text, without spaces at their ends.
  std::vector<std::string> lines() const;
  // The same as one text.
  std::string text() const;
  // The same with the styles: `{1;35}` before text in bold magenta, `{}` before plain text that follows styled text.
  std::string styled_text() const;

  size_t cursor_column() const { return column_; }
  // How many times a style was set, and the cursor moved other than by writing.
  size_t style_changes() const { return style_changes_; }
  size_t movements() const { return movements_; }

 private:
  struct Cell {
    std::string text = " ";
    std::string style;
  };
  using Row = std::vector<Cell>;

  void put(std::string_view character, size_t width);
  void new_line();
  void control(char character);
  void escape(std::string_view parameters, char final);
  void set_style(std::string_view parameters);
  Row& row() { return history_[top_ + row_]; }

  size_t columns_;
  size_t rows_;
  std::vector<Row> history_;  // the last rows_ of them are on the screen
  size_t top_ = 0;
  size_t row_ = 0;
  size_t column_ = 0;
  bool wrap_pending_ = false;  // the last column is written; the next character goes to the next line
  std::string style_;
  std::string partial_;  // the start of an escape sequence or character
  size_t style_changes_ = 0;
  size_t movements_ = 0;
};

}  // namespace carat::test
