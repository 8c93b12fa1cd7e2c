#include "base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace carat {

namespace {

struct Lead {
  size_t length;      // 0: the byte cannot start a sequence
  uint8_t low, high;  // allowed range of the second byte, which excludes overlong forms and surrogates
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// How many bytes of `text` agree with the sequence its first byte announces; the announced length in `length`.
size_t matching_bytes(std::string_view text, size_t& length) {
  const Lead lead = lead_of(static_cast<uint8_t>(text[0]));
  length = lead.length;
  if (lead.length == 0) return 0;
  size_t matched = 1;
  while (matched < lead.length && matched < text.size()) {
    const auto byte = static_cast<uint8_t>(text[matched]);
    const uint8_t low = matched == 1 ? lead.low : uint8_t{0x80};
    const uint8_t high = matched == 1 ? lead.high : uint8_t{0xbf};
    if (byte < low || byte > high) break;
    ++matched;
  }
  return matched;
}

}  // namespace

size_t utf8_sequence_length(std::string_view text) {
  size_t length = 0;
  return matching_bytes(text, length) == length ? length : 0;
}

size_t utf8_incomplete_suffix(std::string_view text) {
  const size_t reach = std::min<size_t>(3, text.size());
  for (size_t back = 1; back <= reach; ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    const auto byte = static_cast<uint8_t>(tail[0]);
    if ((byte & 0xc0) == 0x80) continue;  // a continuation byte: the lead is further left
    size_t length = 0;
    return matching_bytes(tail, length) == back && length > back ? back : 0;
  }
  return 0;
}

std::string utf8_sanitise(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    if (length == 0) {
      clean += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      clean += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return clean;
}

}  // namespace carat
