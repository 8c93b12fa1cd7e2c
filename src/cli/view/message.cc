#include "cli/view/message.h"

#include <algorithm>

#include "cli/view/text_width.h"

namespace carat::cli {

std::string message_lines(std::string_view text, const Screen& screen) {
  if (!screen.is_terminal) return std::string(text) + '\n';
  const size_t width = screen.columns();
  std::string lines;
  size_t column = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    const size_t columns = text_width(word);
    // What stands before a word is a space, or the start of a line; spaces of the text that are not needed are kept.
    if (column > 0 && lines.back() == ' ' && column + columns > width) {
      lines.back() = '\n';
      column = 0;
    }
    lines += word;
    column += columns;
    if (end == text.size()) break;
    lines += text[end];
    column = text[end] == '\n' ? 0 : column + 1;
    text.remove_prefix(end + 1);
  }
  return lines + '\n';
}

}  // namespace carat::cli
