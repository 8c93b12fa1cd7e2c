#include "cli/view/text_width.h"

#include <algorithm>
#include <span>

#include "base/utf8.h"
#include "cli/view/width_ranges.h"

namespace carat::cli {

namespace {

constexpr uint32_t kReplacement = 0xfffd;
constexpr uint32_t kZeroWidthJoiner = 0x200d;
constexpr uint32_t kPictureSelector = 0xfe0f;

bool contains(std::span<const CodePointRange> ranges, uint32_t code_point) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                      [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

bool is_flag_letter(uint32_t code_point) { return code_point >= 0x1f1e6 && code_point <= 0x1f1ff; }
bool is_skin_tone(uint32_t code_point) { return code_point >= 0x1f3fb && code_point <= 0x1f3ff; }

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const size_t length = utf8_sequence_length(text);
  if (length == 0) return {kReplacement, 1};
  const auto lead = static_cast<uint8_t>(text[0]);
  if (length == 1) return {lead, 1};
  uint32_t code_point = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) code_point = (code_point << 6) | (static_cast<uint8_t>(text[i]) & 0x3fu);
  return {code_point, length};
}

unsigned code_point_width(uint32_t code_point) {
  if (code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0)) return 0;
  if (code_point < 0x300) return 1;
  if (contains(kZeroWidth, code_point)) return 0;
  return contains(kDoubleWidth, code_point) ? 2 : 1;
}

TextUnit first_unit(std::string_view text) {
  const CodePoint first = first_code_point(text);
  TextUnit unit{text.substr(0, first.length), first.value, code_point_width(first.value)};
  if (first.value < 0x20) return unit;
  // ASCII followed by ASCII, which nearly all text is, needs no look at the tables.
  if (text.size() > 1 && static_cast<uint8_t>(text[1]) < 0x80 && first.length == 1) return unit;
  size_t length = first.length;
  bool joined = false;
  bool flag_open = is_flag_letter(first.value);
  while (length < text.size()) {
    const CodePoint next = first_code_point(text.substr(length));
    const unsigned columns = code_point_width(next.value);
    const bool mark = columns == 0 && next.value >= 0x300;
    const bool flag_closes = flag_open && is_flag_letter(next.value);
    const bool tone = is_skin_tone(next.value) && unit.columns == 2;
    if (!mark && !joined && !flag_closes && !tone) break;
    if (next.value == kPictureSelector) unit.columns = std::max(unit.columns, 2u);
    unit.columns += columns;
    joined = next.value == kZeroWidthJoiner;
    flag_open = false;
    length += next.length;
  }
  unit.bytes = text.substr(0, length);
  return unit;
}

size_t text_width(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const TextUnit unit = first_unit(text);
    columns += unit.columns;
    text.remove_prefix(unit.bytes.size());
  }
  return columns;
}

std::string_view cut_to_width(std::string_view text, size_t columns) {
  size_t used = 0;
  size_t length = 0;
  while (length < text.size()) {
    const TextUnit unit = first_unit(text.substr(length));
    if (used + unit.columns > columns) break;
    used += unit.columns;
    length += unit.bytes.size();
  }
  return text.substr(0, length);
}

}  // namespace carat::cli
