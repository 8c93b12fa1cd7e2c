#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "exec/cuda/device/memory.h"
#include "exec/cuda/weights/packed.h"
#include "quant/format.h"
#include "support/random.h"

namespace carat::cuda {

// Rows of GGUF blocks with random quants and scales that give values of the order of one.
std::vector<std::byte> random_rows(const quant::FormatInfo& format, size_t rows, size_t cols, test::Random& random);

// What a repacked matrix must hold: the file's values, rounded to fp16 where the packing rounds.
std::vector<float> packed_values(const quant::FormatInfo& format, const std::vector<std::byte>& raw, size_t rows,
                                 size_t cols);

// A random matrix in device memory, repacked there, and the values it has.
class PackedMatrix {
 public:
  PackedMatrix(quant::Format format, uint32_t rows, uint32_t cols, uint64_t seed);
  // From given blocks, repacked in pieces that start at these rows (the first one at 0).
  PackedMatrix(const quant::FormatInfo& format, const std::vector<std::byte>& raw, uint32_t rows, uint32_t cols,
               const std::vector<uint32_t>& pieces);

  const PackedView& view() const { return view_; }
  const std::vector<float>& values() const { return values_; }  // [rows, cols]
  const float* row(uint64_t r) const { return values_.data() + r * view_.cols; }

 private:
  void build(const quant::FormatInfo& format, const std::vector<std::byte>& raw, uint32_t rows, uint32_t cols,
             const std::vector<uint32_t>& pieces);
  DeviceMemory memory_;
  PackedView view_;
  std::vector<float> values_;
};

// The formats a file can have, one per packing: what kernels that read packed weights are tested with.
std::vector<quant::FormatInfo> one_format_per_packing();

}  // namespace carat::cuda
