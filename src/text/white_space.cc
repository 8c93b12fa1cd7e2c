#include "text/white_space.h"

#include <array>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/symbol_table.h"

namespace carat::text {

bool is_white_space(uint32_t code_point) {
  constexpr std::array<std::pair<uint32_t, uint32_t>, 10> kRanges = {{{0x09, 0x0d},
                                                                      {0x1c, 0x20},
                                                                      {0x85, 0x85},
                                                                      {0xa0, 0xa0},
                                                                      {0x1680, 0x1680},
                                                                      {0x2000, 0x200a},
                                                                      {0x2028, 0x2029},
                                                                      {0x202f, 0x202f},
                                                                      {0x205f, 0x205f},
                                                                      {0x3000, 0x3000}}};
  for (const auto& [first, last] : kRanges) {
    if (code_point >= first && code_point <= last) return true;
  }
  return false;
}

size_t leading_space(std::string_view text) {
  if (text.empty()) return 0;
  const size_t length = utf8_sequence_length(text);
  return length > 0 && is_white_space(code_point_of(text.substr(0, length))) ? length : 0;
}

size_t trailing_space(std::string_view text) {
  if (text.empty()) return 0;
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  const std::string_view last = text.substr(begin);
  return utf8_sequence_length(last) == last.size() && is_white_space(code_point_of(last)) ? last.size() : 0;
}

std::string_view trim_start(std::string_view text) {
  while (const size_t length = leading_space(text)) text.remove_prefix(length);
  return text;
}

std::string_view trim_end(std::string_view text) {
  while (const size_t length = trailing_space(text)) text.remove_suffix(length);
  return text;
}

}  // namespace carat::text
