#pragma once

#include <string>
#include <string_view>

namespace carat::cli {

// A text as it stands in HTML, XML or SVG, also inside of quotes: marks become entities, bytes that are no UTF-8 and
// control characters, which XML forbids, U+FFFD.
std::string markup_text(std::string_view text);

// Writes a page or a picture to the file -o names. Throws kIo.
void write_page(const std::string& path, const std::string& page);

}  // namespace carat::cli
