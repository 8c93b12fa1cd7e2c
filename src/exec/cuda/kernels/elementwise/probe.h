#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace carat::cuda {

// Fills memory with pseudo-random bf16 values of magnitude 0.5 to 1, both signs. bytes: a multiple of 4.
void fill_probe(void* data, uint64_t bytes, cudaStream_t stream);

// Reads all of it once and does nothing else; *sink receives the exclusive-or of everything, so that no read can be
// left out. bytes: a multiple of 1 MiB. Bound by memory bandwidth.
void read_probe(const void* data, uint64_t bytes, uint32_t sm_count, uint32_t* sink, cudaStream_t stream);

}  // namespace carat::cuda
