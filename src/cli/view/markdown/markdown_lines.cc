#include "cli/view/markdown/markdown_lines.h"

#include <algorithm>

namespace carat::cli {

namespace {

constexpr size_t kTabWidth = 4;
constexpr std::string_view kSpaces = " \t";

bool is_digit(char character) { return character >= '0' && character <= '9'; }

std::string_view skip_spaces(std::string_view line) {
  const size_t start = line.find_first_not_of(kSpaces);
  return start == std::string_view::npos ? std::string_view() : line.substr(start);
}

size_t count_leading(std::string_view text, char character) {
  return std::min(text.find_first_not_of(character), text.size());
}

// The length of a bullet, or of a number and its delimiter, at the start of `text`; 0 when there is none.
size_t marker_length(std::string_view text) {
  if (text.empty()) return 0;
  if (text[0] == '-' || text[0] == '*' || text[0] == '+') return 1;
  size_t digits = 0;
  while (digits < text.size() && digits < 10 && is_digit(text[digits])) ++digits;
  if (digits == 0 || digits > 9 || digits == text.size()) return 0;
  return text[digits] == '.' || text[digits] == ')' ? digits + 1 : 0;
}

// `|-|:-:|`: nothing but the marks of columns.
bool is_table_rule(std::string_view line) {
  return line.find('|') != std::string_view::npos && line.find('-') != std::string_view::npos &&
         line.find_first_not_of("|-: \t>") == std::string_view::npos;
}

std::string with_long_dashes(std::string_view line) {
  std::string longer;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool begins_run = line[i] == '-' && (i == 0 || line[i - 1] != '-');
    longer += begins_run ? "---" : std::string(1, line[i]);
  }
  return longer;
}

}  // namespace

bool is_blank_line(std::string_view line) { return line.find_first_not_of(kSpaces) == std::string_view::npos; }

size_t indentation(std::string_view line) {
  size_t columns = 0;
  for (const char character : line) {
    if (character == ' ') {
      ++columns;
    } else if (character == '\t') {
      columns += kTabWidth - columns % kTabWidth;
    } else {
      break;
    }
  }
  return columns;
}

bool is_heading_line(std::string_view line) {
  const size_t level = count_leading(line, '#');
  return level >= 1 && level <= 6 && (level == line.size() || kSpaces.find(line[level]) != std::string_view::npos);
}

bool is_rule_line(std::string_view line) {
  if (line.empty() || (line[0] != '-' && line[0] != '*' && line[0] != '_')) return false;
  size_t marks = 0;
  for (const char character : line) {
    if (character == line[0]) {
      ++marks;
    } else if (kSpaces.find(character) == std::string_view::npos) {
      return false;
    }
  }
  return marks >= 3;
}

std::optional<ListMarker> list_marker(std::string_view line) {
  const size_t indent = indentation(line);
  const std::string_view text = skip_spaces(line);
  const size_t length = marker_length(text);
  if (indent > 3 || length == 0 || is_rule_line(text)) return std::nullopt;
  const std::string_view content = text.substr(length);
  const size_t gap = indentation(content);
  const bool blank = is_blank_line(content);
  if (!blank && gap == 0) return std::nullopt;
  ListMarker marker;
  marker.mark = text[length - 1];
  // More than four columns are one, and code after it.
  marker.content_indent = indent + length + (blank || gap > 4 ? 1 : gap);
  marker.can_interrupt = !blank && (length == 1 || (length == 2 && text[0] == '1'));
  return marker;
}

std::optional<Fence> opening_fence(std::string_view line) {
  const size_t indent = indentation(line);
  const std::string_view text = skip_spaces(line);
  if (indent > 3 || text.empty() || (text[0] != '`' && text[0] != '~')) return std::nullopt;
  Fence fence{text[0], count_leading(text, text[0]), indent, ""};
  const std::string_view info = skip_spaces(text.substr(fence.length));
  // Backticks in the rest: that is code within a line of text.
  if (fence.length < 3 || (fence.mark == '`' && info.find('`') != std::string_view::npos)) return std::nullopt;
  fence.language = info.substr(0, info.find_first_of(kSpaces));
  return fence;
}

bool may_close_fence(const Fence& fence, std::string_view start) {
  if (indentation(start) > 3) return false;
  const std::string_view text = skip_spaces(start);
  const size_t length = count_leading(text, fence.mark);
  return is_blank_line(text.substr(length)) && (length == text.size() || length >= fence.length);
}

bool closes_fence(const Fence& fence, std::string_view line) {
  return may_close_fence(fence, line) && count_leading(skip_spaces(line), fence.mark) >= fence.length;
}

std::string spelled_for_parser(std::string_view line) {
  if (is_table_rule(line)) return with_long_dashes(line);
  std::string_view text = line;
  while (!text.empty()) {
    if (text[0] == ' ' || text[0] == '\t' || text[0] == '>') {
      text.remove_prefix(1);
      continue;
    }
    const size_t marker = marker_length(text);
    if (marker == 0 || marker == text.size() || kSpaces.find(text[marker]) == std::string_view::npos) break;
    text.remove_prefix(marker);
  }
  if (!text.starts_with('[')) return std::string(line);
  size_t close = text.find_first_of("[]", 1);
  while (close != std::string_view::npos && text[close - 1] == '\\') close = text.find_first_of("[]", close + 1);
  // A label that runs over several lines counts too, so one that is not closed in this line is treated alike.
  const bool definition = close == std::string_view::npos || text.substr(close).starts_with("]:");
  if (!definition) return std::string(line);
  const size_t position = line.size() - text.size();
  return std::string(line.substr(0, position)).append("&#91;").append(text.substr(1));
}

bool is_undecided(std::string_view start) {
  constexpr size_t kLongestNumber = 4;  // longer ones are rarely list markers, and text must not wait
  if (start.find_first_not_of("-=*_+#>`~|: \t") == std::string_view::npos) return true;
  const std::string_view text = skip_spaces(start);
  return text.size() <= kLongestNumber && text.find_first_not_of("0123456789.) ") == std::string_view::npos;
}

}  // namespace carat::cli
