#include "cli/help/markup.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/utf8.h"

namespace carat::cli {

std::string markup_text(std::string_view text) {
  std::string out;
  for (const char c : utf8_sanitise(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\t':
      case '\n':
        out += c;
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += "\uFFFD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

void write_page(const std::string& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary);
  file << page;
  if (!file.flush()) fail(ErrorCode::kIo, "-o {}: cannot write it: {}", path, std::strerror(errno));
}

}  // namespace carat::cli
