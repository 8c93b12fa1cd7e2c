#pragma once

#include <cmath>

#include "base/float16.h"
#include "quant/blocks.h"

namespace carat::exec {

// How 32 values of a key or value become a block of a Q8_0 cache, on the CPU and, in the same steps, on the GPU
// (kernels/rope.cu). Weights are quantised with more care (quant/quantise_legacy.cc); here every token pays for it. The
// levels are chosen for the scale as it is stored. A value that is not a number makes the whole block so.
inline quant::BlockQ8_0 round_q8_0(const float* values) {
  float largest = std::fabs(values[0]);
  for (int i = 1; i < quant::kBlock; ++i) largest = std::fmax(largest, std::fabs(values[i]));
  quant::BlockQ8_0 block = {.d = float_to_half(largest / 127.0f), .quants = {}};
  const float scale = half_to_float(block.d);
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (int i = 0; i < quant::kBlock; ++i) {
    // A scale rounded down lets the largest value reach more than 127.
    const float level = std::fmin(std::fmax(std::nearbyint(values[i] * inverse), -127.0f), 127.0f);
    block.quants[i] = static_cast<int8_t>(level);
  }
  return block;
}

}  // namespace carat::exec
