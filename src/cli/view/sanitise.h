#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace carat::cli {

// Text that a model, a tool or a file wrote, made safe to show on a terminal: it cannot move the cursor, set the
// title, write the clipboard or make a command look like another one.
//
// - Control characters (ESC, BEL, backspace, CR, NUL, DEL ...) become their pictures, U+2400 and on; C1 controls and
// bytes
//   that are no UTF-8 (some terminals take 0x9b for ESC [) become U+FFFD. Newline and tab stay.
// - CR before a newline goes: that is only another way to end a line.
// - Characters that change the direction of the text after them become U+FFFD.
std::string sanitise(std::string_view text);

// The same for text that comes in pieces, which may be cut anywhere.
class Sanitiser {
 public:
  // What is certain by now; the start of a character, or a CR that a newline may follow, is kept back.
  std::string append(std::string_view piece);
  // What was kept back.
  std::string finish();

 private:
  std::string held_;
};

// Appends a code point as UTF-8; what is no character becomes U+FFFD.
void append_utf8(std::string& text, uint32_t code_point);

}  // namespace carat::cli
