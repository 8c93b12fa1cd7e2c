#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carat::cli {

enum class Colour : uint8_t { kDefault, kCyan, kMagenta };

struct Style {
  bool bold = false;
  bool dim = false;
  bool italic = false;
  bool underline = false;
  bool strike = false;
  Colour colour = Colour::kDefault;

  bool operator==(const Style&) const = default;
};

// Text in one style, and where in the source it comes from.
struct StyledRun {
  std::string text;
  Style style;
  size_t source = 0;
  bool ends_line = false;      // a line break that must be kept follows
  bool is_from_point = false;  // all of it comes from `source`: it was made, not copied
};

// A line of runs, not longer than it was wrapped to.
struct StyledLine {
  std::vector<StyledRun> runs;
  size_t columns = 0;
  size_t source = 0;  // of its first character

  void add(std::string_view text, size_t width, const Style& style);
};

// A line as it is written: escape sequences for styles included, and every style ended at its end.
struct Line {
  std::string text;
  size_t columns = 0;
  size_t source = 0;

  bool operator==(const Line&) const = default;
};

// Without `colour` the text alone.
Line write_line(const StyledLine& line, bool colour);

// A text in one style as it is written.
std::string styled(std::string_view text, const Style& style, bool colour);

// Breaks text between words into lines of `width` columns at most. Runs of white space count as one space and vanish at
// the ends of lines. Ideographs are words of their own; longer words than a line are cut between characters.
std::vector<StyledLine> wrap(const std::vector<StyledRun>& runs, size_t width);

// The same for plain text, line by line.
std::vector<std::string> wrap_plain(std::string_view text, size_t width);

// Breaks text into lines of exactly `width` columns wherever that is, white space kept and tabs expanded: for code.
std::vector<StyledLine> cut_into_lines(const StyledRun& run, size_t width);

// Tabs become spaces up to the next multiple of 4; `column` is where the text starts, and is moved to where it ends.
std::string expand_tabs(std::string_view text, size_t& column);

}  // namespace carat::cli
