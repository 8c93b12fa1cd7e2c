#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "exec/cpu/cpu_executor.h"
#include "exec/cpu/kernel_table.h"
#include "exec/cpu/matmul/activations.h"
#include "exec/cpu/threads/shares.h"
#include "model/model.h"

namespace carat::exec::cpu {

// A weight matrix with the kernel that multiplies it. The weights stay where the file is mapped; only a matrix with
// fewer rows than a kernel has lanes is copied.
class WeightMatrix {
 public:
  WeightMatrix() = default;
  // Throws kUnsupported when the format has no kernel or a quantised width is no multiple of 32.
  WeightMatrix(const KernelTable& kernels, const model::Matrix& matrix, bool int16);
  WeightMatrix(WeightMatrix&&) = default;
  WeightMatrix& operator=(WeightMatrix&&) = default;

  bool empty() const { return rows_ == 0; }
  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  // False: the kernel reads fp32 activations.
  bool quantised() const { return quantised_; }
  // Where the matrix begins in the file.
  const std::byte* source() const { return source_; }

  uint32_t tiles() const { return (rows_ + lanes_ - 1) / lanes_; }
  // Results [tile * lanes, ...) of each activation row, written to out[row * out_stride + (tile * lanes ...)].
  void multiply_tile(uint32_t tile, const Activations& activations, float* out, size_t out_stride, void* scratch) const;

 private:
  MatmulTile kernel_ = nullptr;
  const std::byte* source_ = nullptr;
  const uint8_t* data_ = nullptr;
  size_t row_bytes_ = 0;
  uint32_t rows_ = 0;
  uint32_t cols_ = 0;
  uint32_t lanes_ = 1;
  bool quantised_ = false;
  std::vector<uint8_t> padded_;  // lanes_ rows, the last rows_ of them real
};

// One product of a parallel step: out[r, :] = weights * activations[r].
struct Product {
  const WeightMatrix* weights;
  const Activations* activations;
  float* out;  // [activation rows, out_stride]
  size_t out_stride;
};

// Runs products on all workers of a pool. Owns the workers' scratch memory, so nothing is allocated later.
class Multiplier {
 public:
  Multiplier(const KernelTable& kernels, ThreadPool& pool, uint32_t max_rows);
  void run(std::span<const Product> products);
  void run(const Product& product) { run({&product, 1}); }
  // Called with each product, on the calling thread, before it is made.
  void observe(ProductObserver observer) { observer_ = std::move(observer); }

 private:
  ThreadPool* pool_;
  Shares shares_;
  ProductObserver observer_;
  std::vector<AlignedBuffer<std::byte>> scratch_;  // [workers]
};

}  // namespace carat::exec::cpu
