#include "cli/view/live_region.h"

#include <algorithm>
#include <iterator>

namespace carat::cli {

// A window made narrower since makes the terminal fold lines that fitted before.
size_t LiveRegion::rows_of(const Line& line) const {
  const size_t columns = screen_.columns();
  return std::max<size_t>(1, (line.columns + columns - 1) / columns);
}

size_t LiveRegion::capacity() const { return std::max(screen_.rows(), 3u) - 1; }

// From the end of the last shown line up to the start of `line`, erasing each row on the way. (To erase the rest of the
// screen at once would be shorter, but in its first column tmux takes that for a request to keep what was there.)
void LiveRegion::go_to(size_t line) {
  size_t rows = 0;
  for (size_t i = line; i < shown_.size(); ++i) rows += rows_of(shown_[i]);
  output_ += "\r\x1b[K";
  for (size_t row = 1; row < std::min<size_t>(rows, screen_.rows()); ++row) output_ += "\x1b[A\x1b[K";
}

void LiveRegion::update(const std::vector<Line>& lines, size_t settled) {
  size_t count = settled;
  if (screen_.can_move_cursor) {
    for (size_t rows = 0; count < lines.size(); ++count) {
      rows += rows_of(lines[count]);
      if (rows > capacity()) break;
    }
  }
  // With nothing changeable the cursor waits on an empty line, which is then a line like the others.
  if (shown_.empty()) shown_.emplace_back();
  std::vector<Line> target(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(count));
  if (count == settled) target.emplace_back();

  size_t next = 0;
  while (next < target.size() && next < shown_.size() && target[next].text == shown_[next].text) ++next;
  if (next == target.size() && next < shown_.size()) --next;  // lines went away: the cursor goes back to the last
  const bool continues =
      next + 1 == shown_.size() && next < target.size() && target[next].text.starts_with(shown_[next].text);
  if (continues) {
    output_ += std::string_view(target[next].text).substr(shown_[next].text.size());
  } else if (next < shown_.size()) {
    go_to(next);
    output_ += target[next].text;
  } else if (next < target.size()) {
    (output_ += '\n') += target[next].text;
  }
  for (size_t i = next + 1; i < target.size(); ++i) (output_ += '\n') += target[i].text;

  if (count == settled) target.pop_back();
  shown_.assign(std::make_move_iterator(target.begin() + static_cast<std::ptrdiff_t>(settled)),
                std::make_move_iterator(target.end()));
}

void LiveRegion::flush() {
  if (output_.empty()) return;
  write_(output_);
  output_.clear();
}

}  // namespace carat::cli
