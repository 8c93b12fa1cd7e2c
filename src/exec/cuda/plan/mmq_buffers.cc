#include "exec/cuda/plan/mmq_buffers.h"

#include <algorithm>

namespace carat::cuda {

void MmqBuffers::carve(Carver& carver, const Widths& w, uint32_t row_count, MmqActivations activations) {
  const uint64_t chunks = uint64_t{mmq_padded_rows(row_count)} * mmq_chunks(std::max({w.d, w.q, w.F, w.P}));
  quants = carver.take<int8_t>(chunks * kMmqChunk * static_cast<uint32_t>(activations));
  scales = carver.take<float>(chunks * kMmqChunk / 32);
  sums = carver.take<float>(chunks * kMmqChunk / 32);
}

}  // namespace carat::cuda
