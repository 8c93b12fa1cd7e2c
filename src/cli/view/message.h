#pragma once

#include <string>
#include <string_view>

#include "cli/view/screen.h"

namespace carat::cli {

// A message such as "carat: warning: …" as it is written to `screen`, with a line feed at its end. On a terminal lines
// are broken between words. Words that are longer than a line, which are mostly paths that somebody wants to copy, stay
// whole and are left to the terminal.
std::string message_lines(std::string_view text, const Screen& screen);

}  // namespace carat::cli
