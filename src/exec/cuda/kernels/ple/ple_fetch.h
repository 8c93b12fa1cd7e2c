#pragma once

#include "exec/cuda/device/launch.h"
#include "exec/cuda/plan/buffers.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// Rows of a per-layer-embedding table in host memory into a cache of such rows in device memory: columns [0, cols) of
// row fetches[i].token to row fetches[i].place, for i in [0, count); negative tokens bring nothing. Both have the same
// packing and width, and the planes of the cache are writable.
void fetch_ple_rows(const PackedView& table, const PleFetch* fetches, uint32_t count, uint32_t cols,
                    const PackedView& cache, const LaunchConfig& launch);

}  // namespace carat::cuda
