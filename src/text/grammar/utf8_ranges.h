#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/grammar/grammar.h"

namespace carat::text::grammar {

struct ByteRange {
  uint8_t low, high;  // both included
  bool operator==(const ByteRange&) const = default;
};

// The UTF-8 forms of some code points: each byte within its range.
struct ByteSequence {
  uint8_t length = 0;
  ByteRange bytes[4] = {};
};

// All code points of `ranges` (normalised), in ascending order of their bytes. Two sequences agree in their first
// ranges or have none of those bytes in common.
std::vector<ByteSequence> utf8_sequences(std::span<const CodePointRange> ranges);

}  // namespace carat::text::grammar
