#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/view/live_region.h"
#include "cli/view/sanitise.h"
#include "cli/view/screen.h"

namespace carat::cli {

// --show-thinking full|summary|none
enum class ShowThinking { kFull, kSummary, kNone };

// Throws kBadArgument naming the flag and its words.
ShowThinking parse_show_thinking(std::string_view word);

// Shows one thought of the model while it is being written.
//
// kFull: the text, dimmed and wrapped, under a heading. kSummary: one line that counts, rewritten in place. Where
// nobody looks (no terminal) kFull is the plain text and kSummary nothing.
class ThoughtView {
 public:
  ThoughtView(Write write, const Screen& screen, ShowThinking show);

  void append(std::string_view utf8);
  // How far the thought has got; may be called at any rate.
  void progress(double seconds, uint32_t tokens);
  // The thought is complete. The cursor then stands at the start of a line.
  void finish(double seconds, uint32_t tokens);

 private:
  void take(std::string_view text);
  void draw(bool line_ends);
  void show_summary(const std::string& time, const std::string& tokens, bool last);

  Screen screen_;
  ShowThinking show_;
  bool plain_;  // bytes go out as they come
  LiveRegion region_;
  Sanitiser sanitiser_;
  std::string line_;  // of the thought, from the last line on the screen on
  bool begun_ = false;
  bool ends_line_ = true;  // of plain text: the last character was a newline
};

}  // namespace carat::cli
