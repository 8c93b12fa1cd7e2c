#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "cli/view/live_region.h"
#include "cli/view/screen.h"

namespace carat::cli {

// Shows an answer while it is being written. Pieces may be cut anywhere, also within a character; what they are cut
// into makes no difference to what stands on the screen in the end.
class AnswerView {
 public:
  virtual ~AnswerView() = default;
  virtual void append(std::string_view utf8) = 0;
  // The answer is complete. Must be called once, at the end.
  virtual void finish() = 0;
};

// The text as it is; with `sanitise`, for a terminal, made safe to show. Adds no newline.
std::unique_ptr<AnswerView> make_raw_view(Write write, bool sanitise);

// The text as Markdown. It appears at once, and a block whose meaning changes (a line that turns out to be the head of
// a table) is drawn again in its place; a block that is complete is never touched again, nor are the lines of one that
// is taller than the screen. Begins at the start of a line, and ends there. Without a cursor to move, blocks appear
// when they are complete. Throws kUnsupported in a build without md4c: see markdown_available().
std::unique_ptr<AnswerView> make_markdown_view(Write write, const Screen& screen);

}  // namespace carat::cli
