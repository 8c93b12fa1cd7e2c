#include "exec/cuda/weights/upload_cut.h"

#include <algorithm>

#include "base/error.h"

namespace carat::cuda {

std::vector<UploadLoad> cut_uploads(std::span<const UploadRows> matrices, uint64_t load_bytes) {
  std::vector<UploadLoad> loads;
  for (size_t matrix = 0; matrix < matrices.size(); ++matrix) {
    const auto [rows, row_bytes] = matrices[matrix];
    CARAT_CHECK(row_bytes > 0);
    for (uint64_t first = 0; first < rows;) {
      uint64_t offset = 0, room = load_bytes;
      if (!loads.empty()) {
        offset = (loads.back().bytes + kUploadAlignment - 1) / kUploadAlignment * kUploadAlignment;
        room = offset < load_bytes ? load_bytes - offset : 0;
      }
      if (loads.empty() || room < row_bytes) {
        loads.emplace_back();
        offset = 0;
        room = std::max(load_bytes, row_bytes);
      }
      const uint64_t count = std::min(rows - first, room / row_bytes);
      loads.back().parts.push_back({matrix, first, count, offset});
      loads.back().bytes = offset + count * row_bytes;
      first += count;
    }
  }
  return loads;
}

}  // namespace carat::cuda
