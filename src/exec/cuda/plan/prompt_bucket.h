#pragma once

#include <algorithm>
#include <cstdint>

namespace carat::cuda {

// Chunks of a prompt with up to this many rows are padded to a bucket: they run as a replay of the bucket's graph, and
// the library has chosen its products' algorithms before. Larger chunks keep the GPU busy longer than their launches
// take.
inline constexpr uint32_t kLargestPromptBucket = 512;

// The rows a chunk of `rows` is padded to, at most `chunk`; 0: it runs as it is. Below 160 rows products are bound by
// their weights, and a row more costs next to nothing.
constexpr uint32_t prompt_bucket(uint32_t rows, uint32_t chunk) {
  if (rows > kLargestPromptBucket) return 0;
  const uint32_t step = rows <= 64 ? 16 : rows <= 256 ? 32 : 64;
  return std::min((rows + step - 1) / step * step, chunk);
}

}  // namespace carat::cuda
