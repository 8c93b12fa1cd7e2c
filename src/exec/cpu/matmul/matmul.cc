#include "exec/cpu/matmul/matmul.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace carat::exec::cpu {
namespace {

bool is_float(quant::Format format) {
  return format == quant::Format::kF32 || format == quant::Format::kF16 || format == quant::Format::kBF16;
}

}  // namespace

WeightMatrix::WeightMatrix(const KernelTable& kernels, const model::Matrix& matrix, bool int16)
    : kernel_(kernels.find_matmul(matrix.format, int16)),
      source_(matrix.data.data()),
      data_(reinterpret_cast<const uint8_t*>(matrix.data.data())),
      row_bytes_(matrix.row_bytes()),
      rows_(static_cast<uint32_t>(matrix.rows)),
      cols_(static_cast<uint32_t>(matrix.cols)),
      lanes_(kernels.lanes),
      quantised_(!is_float(matrix.format)) {
  if (kernel_ == nullptr || (quantised_ && cols_ % kBlock != 0)) {
    fail(ErrorCode::kUnsupported, "tensor \"{}\": the CPU executor has no kernel for {} with rows of {} values",
         matrix.name, quant::info(matrix.format).name, matrix.cols);
  }
  if (rows_ < lanes_) {
    padded_.resize(lanes_ * row_bytes_);
    const uint32_t padding = lanes_ - rows_;
    for (uint32_t lane = 0; lane < lanes_; ++lane) {
      const uint32_t row = lane < padding ? 0 : lane - padding;
      std::memcpy(padded_.data() + lane * row_bytes_, data_ + row * row_bytes_, row_bytes_);
    }
    data_ = padded_.data();
  }
}

void WeightMatrix::multiply_tile(uint32_t tile, const Activations& activations, float* out, size_t out_stride,
                                 void* scratch) const {
  const uint32_t first = tile * lanes_;
  if (rows_ < lanes_) {
    kernel_({data_, row_bytes_, lanes_ - rows_}, activations, out, out_stride, scratch);
    return;
  }
  const uint32_t begin = std::min(first, rows_ - lanes_);
  kernel_({data_ + begin * row_bytes_, row_bytes_, first - begin}, activations, out + first, out_stride, scratch);
}

Multiplier::Multiplier(const KernelTable& kernels, ThreadPool& pool, uint32_t max_rows)
    : pool_(&pool), shares_(pool.size()) {
  for (unsigned worker = 0; worker < pool.size(); ++worker) scratch_.emplace_back(kernels.matmul_scratch(max_rows));
}

void Multiplier::run(std::span<const Product> products) {
  if (observer_) {
    for (const Product& product : products) {
      const Activations& inputs = *product.activations;
      for (uint32_t row = 0; row < inputs.rows; ++row) {
        const size_t at = inputs.index != nullptr ? inputs.index[row] : row;
        observer_(product.weights->source(), {inputs.values + at * inputs.stride, inputs.cols});
      }
    }
  }
  uint32_t tiles = 0;
  for (const Product& product : products) tiles += product.weights->tiles();
  // In order: a tile asks for the weights of the next.
  shares_.run(*pool_, tiles, [&](uint32_t tile, unsigned worker) {
    const Product* product = products.data();
    while (tile >= product->weights->tiles()) tile -= (product++)->weights->tiles();
    product->weights->multiply_tile(tile, *product->activations, product->out, product->out_stride,
                                    scratch_[worker].data());
  });
}

}  // namespace carat::exec::cpu
