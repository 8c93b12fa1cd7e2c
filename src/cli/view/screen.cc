#include "cli/view/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace carat::cli {

namespace {

constexpr unsigned kDefaultColumns = 80;
constexpr unsigned kDefaultRows = 24;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

unsigned size_from_environment(const char* name, unsigned otherwise) {
  const std::string_view text = environment(name);
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value > 0 && value < 10000 ? value : otherwise;
}

winsize window_of(int descriptor) {
  winsize size = {};
  if (descriptor < 0 || ::ioctl(descriptor, TIOCGWINSZ, &size) != 0) return {};
  return size;
}

}  // namespace

ColourChoice parse_colour_choice(std::string_view word) {
  if (word == "auto") return ColourChoice::kAuto;
  if (word == "always") return ColourChoice::kAlways;
  if (word == "never") return ColourChoice::kNever;
  fail(ErrorCode::kBadArgument, "--color {}: use auto, always or never", word);
}

unsigned Screen::columns() const {
  if (fixed_columns_ != 0) return fixed_columns_;
  const unsigned columns = window_of(descriptor_).ws_col;
  return columns != 0 ? columns : size_from_environment("COLUMNS", kDefaultColumns);
}

unsigned Screen::rows() const {
  if (fixed_rows_ != 0) return fixed_rows_;
  const unsigned rows = window_of(descriptor_).ws_row;
  return rows != 0 ? rows : size_from_environment("LINES", kDefaultRows);
}

Screen Screen::of(int descriptor, ColourChoice choice) {
  Screen screen;
  screen.descriptor_ = descriptor;
  screen.is_terminal = ::isatty(descriptor) == 1;
  screen.can_move_cursor = screen.is_terminal && environment("TERM") != "dumb";
  screen.colour = choice == ColourChoice::kAlways ||
                  (choice == ColourChoice::kAuto && screen.can_move_cursor && environment("NO_COLOR").empty());
  return screen;
}

Screen Screen::of_size(unsigned columns, unsigned rows, bool colour) {
  Screen screen;
  screen.is_terminal = true;
  screen.can_move_cursor = true;
  screen.colour = colour;
  screen.fixed_columns_ = columns;
  screen.fixed_rows_ = rows;
  return screen;
}

}  // namespace carat::cli
