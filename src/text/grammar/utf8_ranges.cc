#include "text/grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "text/grammar/grammar_builder.h"

namespace carat::text::grammar {

namespace {

constexpr uint32_t kLastOfLength[] = {0x7f, 0x7ff, 0xffff, 0x10ffff};

// A range whose code points have the same length and where every byte but the first different one runs over all
// continuation bytes.
ByteSequence sequence_of(uint32_t first, uint32_t last) {
  std::string low, high;
  append_utf8(first, low);
  append_utf8(last, high);
  ByteSequence sequence;
  sequence.length = static_cast<uint8_t>(low.size());
  for (size_t i = 0; i < low.size(); ++i) {
    sequence.bytes[i] = {static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])};
  }
  return sequence;
}

void append_sequences(uint32_t first, uint32_t last, std::vector<ByteSequence>& out) {
  while (first <= last) {
    uint32_t end = last;
    for (const uint32_t last_of_length : kLastOfLength) {
      if (first <= last_of_length) {
        end = std::min(end, last_of_length);
        break;
      }
    }
    // Cut where a block of 64, 4096 or 262144 begins or ends, as long as the range is not made of whole blocks.
    for (uint32_t block = uint32_t{1} << 6; block <= uint32_t{1} << 18 && end >= 0x80; block <<= 6) {
      const uint32_t inside = block - 1;
      if ((first & ~inside) == (end & ~inside)) break;
      if ((first & inside) != 0) {
        end = std::min(end, first | inside);
        break;
      }
      if ((end & inside) != inside) end = (end & ~inside) - 1;
    }
    out.push_back(sequence_of(first, end));
    first = end + 1;
  }
}

}  // namespace

std::vector<ByteSequence> utf8_sequences(std::span<const CodePointRange> ranges) {
  std::vector<ByteSequence> sequences;
  for (const CodePointRange& range : ranges) append_sequences(range.first, range.last, sequences);
  return sequences;
}

}  // namespace carat::text::grammar
