#pragma once

#include <cstdint>
#include <vector>

#include "exec/cuda/plan/prompt_bucket.h"

namespace carat::cuda {

// The numbers of rows for which the library's algorithms are timed at load, the most useful first: a search that takes
// too long is cut off. The full chunk is what a long prompt is made of; then what its last chunk may have; then the
// largest bucket of short prompts. Smaller buckets are left out: their products have eight kernels each to be loaded
// for the trial, a tenth of a second a bucket, and no prompt of theirs became faster (docs/kernels.md).
inline std::vector<uint32_t> searched_rows(uint32_t chunk) {
  std::vector<uint32_t> rows = {chunk};
  for (const uint32_t fewer : {2048u, 1024u, kLargestPromptBucket}) {
    if (fewer < chunk) rows.push_back(fewer);
  }
  return rows;
}

}  // namespace carat::cuda
