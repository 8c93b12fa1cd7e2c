#include "text/letter_case.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"
#include "text/tokenizer/symbol_table.h"

namespace carat::text {

namespace {

// Capital letters first..last; each has its small letter `offset` further on. With kAlternating capital and small
// letters take turns, starting with a capital.
struct CaseRange {
  uint32_t first;
  uint32_t last;
  uint32_t offset;
};
constexpr uint32_t kAlternating = 1;

constexpr std::array<CaseRange, 28> kRanges = {{{'A', 'Z', 32},
                                                {0xc0, 0xd6, 32},
                                                {0xd8, 0xde, 32},
                                                {0x100, 0x12e, kAlternating},
                                                {0x132, 0x136, kAlternating},
                                                {0x139, 0x147, kAlternating},
                                                {0x14a, 0x176, kAlternating},
                                                {0x179, 0x17d, kAlternating},
                                                {0x1cd, 0x1db, kAlternating},
                                                {0x1de, 0x1ee, kAlternating},
                                                {0x1f8, 0x21e, kAlternating},
                                                {0x222, 0x232, kAlternating},
                                                {0x388, 0x38a, 37},
                                                {0x391, 0x3a1, 32},
                                                {0x3a3, 0x3ab, 32},
                                                {0x3d8, 0x3ee, kAlternating},
                                                {0x400, 0x40f, 80},
                                                {0x410, 0x42f, 32},
                                                {0x460, 0x480, kAlternating},
                                                {0x48a, 0x4be, kAlternating},
                                                {0x4c1, 0x4cd, kAlternating},
                                                {0x4d0, 0x52e, kAlternating},
                                                {0x531, 0x556, 48},
                                                {0x1e00, 0x1e94, kAlternating},
                                                {0x1ea0, 0x1efe, kAlternating},
                                                {0x386, 0x386, 38},
                                                {0x38c, 0x38c, 64},
                                                {0x38e, 0x38f, 63}}};

uint32_t lower_of(uint32_t code_point) {
  if (code_point == 0x178) return 0xff;
  for (const auto& [first, last, offset] : kRanges) {
    if (code_point < first || code_point > last) continue;
    return offset != kAlternating || (code_point - first) % 2 == 0 ? code_point + offset : code_point;
  }
  return code_point;
}

uint32_t upper_of(uint32_t code_point) {
  if (code_point == 0xff) return 0x178;
  if (code_point == 0xb5) return 0x39c;   // the micro sign is a small mu
  if (code_point == 0x3c2) return 0x3a3;  // final sigma
  for (const auto& [first, last, offset] : kRanges) {
    if (code_point < first + offset || code_point > last + offset) continue;
    if (offset != kAlternating || (code_point - first) % 2 == 1) return code_point - offset;
  }
  return code_point;
}

// Every mapped letter is below U+0800 or in U+1E00..U+1EFF: two or three bytes.
void append_letter(uint32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xc0 | code_point >> 6);
    out += static_cast<char>(0x80 | (code_point & 0x3f));
  } else {
    out += static_cast<char>(0xe0 | code_point >> 12);
    out += static_cast<char>(0x80 | (code_point >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code_point & 0x3f));
  }
}

template <typename Mapping>
std::string map_letters(std::string_view text, Mapping mapping) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const size_t length = utf8_sequence_length(rest);
    const std::string_view sequence = rest.substr(0, length == 0 ? 1 : length);
    const uint32_t code_point = length == 0 ? 0 : code_point_of(sequence);
    const uint32_t mapped = length == 0 ? 0 : mapping(code_point);
    if (mapped == code_point) {
      out += sequence;
    } else {
      append_letter(mapped, out);
    }
    at += sequence.size();
  }
  return out;
}

constexpr std::string_view kSharpS = "\u00df";

}  // namespace

std::string to_upper(std::string_view text) {
  std::string out = map_letters(text, upper_of);
  for (size_t at = out.find(kSharpS); at != std::string::npos; at = out.find(kSharpS, at)) {
    out.replace(at, kSharpS.size(), "SS");
  }
  return out;
}

std::string to_lower(std::string_view text) { return map_letters(text, lower_of); }

}  // namespace carat::text
