#pragma once

#include <cstddef>
#include <cstdint>

namespace carat::text::jinja {

// What one template may cost. A template comes with a file nobody has checked; beyond a limit it fails with an Error.
struct Limits {
  size_t template_bytes = size_t{1} << 20;
  uint32_t nesting = 200;                // of expressions and blocks in the source
  uint32_t call_depth = 1000;            // of evaluation, macro calls included
  uint64_t steps = 50'000'000;           // evaluated nodes and elements looked at: a few seconds
  uint64_t bytes = uint64_t{256} << 20;  // of all strings made on the way, most of which are gone at once
  size_t output_bytes = size_t{32} << 20;
};

}  // namespace carat::text::jinja
