#pragma once

#include <cstdint>

namespace carat::engine {

// The pass that was finished last.
struct PassFigures {
  uint64_t number = 0;  // counted from 1; 0: there was none yet
  uint32_t decode_rows = 0;
  uint32_t prompt_rows = 0;
  uint32_t tokens = 0;        // that were chosen
  double seconds = 0.0;       // from its start until all were
  double mask_seconds = 0.0;  // of these, what guides took to say which tokens are allowed
};

}  // namespace carat::engine
