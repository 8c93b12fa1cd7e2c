#include "cli/view/sanitise.h"

#include "base/utf8.h"

namespace carat::cli {

namespace {

constexpr uint32_t kReplacement = 0xfffd;
constexpr uint32_t kPictures = 0x2400;  // of U+0000; the others follow in order
constexpr uint32_t kPictureOfDelete = 0x2421;

// U+0080 to U+009F as UTF-8.
bool is_c1(std::string_view unit) {
  return unit.size() == 2 && unit[0] == '\xc2' && static_cast<uint8_t>(unit[1]) < 0xa0;
}

// Embeddings, overrides and isolates: U+202A to U+202E, U+2066 to U+2069.
bool turns_direction(std::string_view unit) {
  if (unit.size() != 3 || unit[0] != '\xe2') return false;
  const auto second = static_cast<uint8_t>(unit[1]);
  const auto third = static_cast<uint8_t>(unit[2]);
  return (second == 0x80 && third >= 0xaa && third <= 0xae) || (second == 0x81 && third >= 0xa6 && third <= 0xa9);
}

}  // namespace

void append_utf8(std::string& text, uint32_t code_point) {
  if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000)) code_point = kReplacement;
  const auto tail = [&](unsigned shift) { text += static_cast<char>(0x80 | ((code_point >> shift) & 0x3f)); };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xc0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xe0 | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string sanitise(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    const std::string_view unit = text.substr(0, length == 0 ? 1 : length);
    const auto byte = static_cast<uint8_t>(unit[0]);
    text.remove_prefix(unit.size());
    if (length == 0 || is_c1(unit) || turns_direction(unit)) {
      append_utf8(clean, kReplacement);
    } else if (byte == 0x7f) {
      append_utf8(clean, kPictureOfDelete);
    } else if (byte >= 0x20 || byte == '\n' || byte == '\t') {
      clean += unit;
    } else if (byte != '\r' || !text.starts_with('\n')) {
      append_utf8(clean, kPictures + byte);
    }
  }
  return clean;
}

std::string Sanitiser::append(std::string_view piece) {
  held_ += piece;
  size_t keep = utf8_incomplete_suffix(held_);
  if (keep == 0 && held_.ends_with('\r')) keep = 1;
  const size_t ready = held_.size() - keep;
  std::string clean = sanitise(std::string_view(held_).substr(0, ready));
  held_.erase(0, ready);
  return clean;
}

std::string Sanitiser::finish() {
  std::string clean = sanitise(held_);
  held_.clear();
  return clean;
}

}  // namespace carat::cli
