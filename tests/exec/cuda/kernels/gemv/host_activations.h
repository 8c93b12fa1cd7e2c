#pragma once

// The host's idea of quantised activations: how kernels must round them, how they lie in device memory, and what
// products with them must give.
#include <cstdint>
#include <vector>

#include "exec/cuda/device/memory.h"
#include "exec/cuda/kernels/gemv/activation.h"

namespace carat::cuda {

// Rows rounded to 15 bits per 16 columns. Columns [cols, steps * 256) are padding.
struct HostQuantised {
  static constexpr uint32_t kScaleColumns = 16;  // columns that share a scale
  uint32_t rows = 0, cols = 0, steps = 0;
  std::vector<int32_t> q{};     // [rows, steps * 256]
  std::vector<float> scales{};  // [rows, steps * 16]
  std::vector<float> values{};  // [rows, steps * 256]

  uint32_t width() const { return steps * kStep; }
  float scale(uint64_t row, uint32_t column) const { return scales[(row * width() + column) / kScaleColumns]; }
  double quantised(uint64_t row, uint32_t column) const {
    return static_cast<double>(q[row * width() + column]) * static_cast<double>(scale(row, column));
  }
};

// values: [rows, cols].
HostQuantised quantise_host(const std::vector<float>& values, uint32_t rows, uint32_t cols);

// Quantised rows in device memory.
struct DeviceQuantised {
  uint32_t rows = 0, cols = 0;
  DeviceArray<uint32_t> words;
  DeviceArray<BlockMeta> meta;
  DeviceArray<float> values;
  QuantisedRows view(bool with_values) const {
    return {words.data(), meta.data(), with_values ? values.data() : nullptr};
  }
};
DeviceQuantised upload_quantised(const HostQuantised& rows);
// For results: NaN wherever a kernel must write, zero in the runs of 16 columns beyond the true width, as the
// executor prepares them once.
DeviceQuantised unwritten_quantised(uint32_t rows, uint32_t cols);
// Also expects the sums to be right. Values only if asked for.
HostQuantised download_quantised(const DeviceQuantised& rows, bool with_values);

// What results must be, and how far each may be off.
struct Expected {
  std::vector<double> values, allowance;  // [rows, outputs]
};

// out[r][o] = sum of weights[o][c] x[r][c], over the rounded x, or over its exact values for float weights. Allowed is
// the rounding of fp32 sums, relative to |w| |x|; it covers activations that round the other way because their own last
// bits differ, whose share is a tenth of it.
Expected product_reference(const std::vector<float>& weights, uint32_t outputs, const HostQuantised& x,
                           bool float_weights);
// The same with the exact activations: how far quantisation takes the result from the truth.
std::vector<double> exact_product(const std::vector<float>& weights, uint32_t outputs, const HostQuantised& x);
// gelu(gate) * up.
Expected geglu_reference(const Expected& gate, const Expected& up);

// found: [rows, leading] of which the first `outputs` columns of a row count.
void expect_within(const std::vector<float>& found, uint32_t leading, const Expected& expected, uint32_t outputs,
                   const char* what);
// Quantised results: scales, quants and (if there) values fit the expected values of the rows' true columns.
void expect_quantised(const HostQuantised& found, const Expected& expected, bool with_values, const char* what);

}  // namespace carat::cuda
