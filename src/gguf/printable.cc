#include "gguf/printable.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/utf8.h"

namespace carat::gguf {

namespace {

constexpr size_t kShownBytes = 96;

// C0 controls, DEL, and the C1 controls U+0080 to U+009F, which terminals obey as well.
bool is_control(std::string_view sequence) {
  const auto first = static_cast<uint8_t>(sequence[0]);
  if (sequence.size() == 1) return first < 0x20 || first == 0x7f;
  return sequence.size() == 2 && first == 0xc2 && static_cast<uint8_t>(sequence[1]) < 0xa0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown = "'";
  std::string_view rest = text;
  while (!rest.empty() && text.size() - rest.size() < kShownBytes) {
    const size_t length = utf8_sequence_length(rest);
    if (length == 0 || is_control(rest.substr(0, length))) {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<uint8_t>(rest[0]));
      rest.remove_prefix(1);
    } else {
      shown += rest.substr(0, length);
      rest.remove_prefix(length);
    }
  }
  shown += '\'';
  if (!rest.empty()) fmt::format_to(std::back_inserter(shown), "... ({} bytes)", text.size());
  return shown;
}

}  // namespace carat::gguf
