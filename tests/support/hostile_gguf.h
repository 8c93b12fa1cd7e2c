#pragma once

#include <string>
#include <vector>

#include "support/gguf_sketch.h"

namespace carat::test {

// A file that must be refused.
struct HostileGguf {
  std::string name;  // what is wrong with it, for the test's output
  Bytes bytes;
  std::string message;  // what the error must say: the field it names and the value it found
};

// Containers whose counts, lengths, shapes, offsets, alignments and names lie.
std::vector<HostileGguf> hostile_ggufs();

}  // namespace carat::test
