#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/view/screen.h"
#include "cli/view/styled_text.h"

namespace carat::cli {

using Write = std::function<void(std::string_view)>;

// The end of the output: lines that may still change, rewritten in place when they do. Everything above them is settled
// and never touched again. The cursor stands at the end of the last changeable line, or at the start of an empty line
// when there is none. Where the cursor cannot be moved only settled lines are written.
class LiveRegion {
 public:
  LiveRegion(Write write, const Screen& screen) : write_(std::move(write)), screen_(screen) {}

  // The lines from the first changeable one on are now `lines`, of which the first `settled` will never change again.
  // Changeable lines that do not fit on the screen are left out.
  void update(const std::vector<Line>& lines, size_t settled);

  // For text that is certain as it comes: goes to the end of the line at once. There must be no changeable lines. A
  // line begun this way is ended by end_line() before update() is called again.
  void write_text(std::string_view text) { output_ += text; }
  void end_line() { output_ += '\n'; }

  bool empty() const { return shown_.empty(); }
  // How many changeable rows fit.
  size_t capacity() const;
  // Hands what was collected since to the sink, in one piece.
  void flush();

 private:
  void go_to(size_t line);
  size_t rows_of(const Line& line) const;

  Write write_;
  Screen screen_;
  std::vector<Line> shown_;
  std::string output_;
};

}  // namespace carat::cli
