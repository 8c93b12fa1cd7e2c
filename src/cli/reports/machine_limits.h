#pragma once

#include <cstdint>

#include "model/model.h"
#include "quant/format.h"

namespace carat::cli {

// Bytes a decode step must read: every weight a token touches (the experts it is routed to, not all), its rows of the
// embedding tables, and the keys and values of `positions` earlier positions as far as each layer sees them.
double decode_bytes(const model::Model& model, double positions, quant::Format kv_format);

// Bytes per second the CPU reads when `threads` threads go again and again through a buffer of `bytes` bytes: memory
// bandwidth for a large model, cache bandwidth for one that fits the caches, so a fair limit for both.
double read_bandwidth(unsigned threads, uint64_t bytes);

}  // namespace carat::cli
