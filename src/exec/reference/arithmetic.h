#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/model.h"

namespace carat::exec::reference {

// Activations of some rows: [rows, width], fp32, row after row. Everything here stores fp32 and sums in double, and
// the result for a row never depends on which other rows stand beside it.
class Block {
 public:
  Block(size_t rows, size_t width) : rows_(rows), width_(width), values_(rows * width) {}

  size_t rows() const { return rows_; }
  size_t width() const { return width_; }
  std::span<float> row(size_t r) { return std::span(values_).subspan(r * width_, width_); }
  std::span<const float> row(size_t r) const { return std::span(values_).subspan(r * width_, width_); }

 private:
  size_t rows_;
  size_t width_;
  std::vector<float> values_;
};

// A copy of the given rows, in their order.
Block gather(const Block& block, std::span<const size_t> rows);

// y[o] = sum over i of weight[o][i] * x[i] for every row; each row of the weight is dequantised once.
Block linear(ThreadPool& pool, const model::Matrix& weight, const Block& x);  // [rows, cols] -> [rows, weight.rows]

// x / sqrt(mean(x^2) + eps), then times `weight` unless that is empty. In place.
void rms_norm(std::span<float> x, std::span<const float> weight, float eps);
Block rms_norm(const Block& x, std::span<const float> weight, float eps);
// The same over each run of head_width values of each row, in place.
void rms_norm_heads(Block& x, uint32_t head_width, std::span<const float> weight, float eps);

// The tanh form of GELU.
double gelu(double x);
// gelu(gate) * up, element by element.
Block geglu(const Block& gate, const Block& up);

void add(Block& x, const Block& y);  // x += y

// Turns scores into probabilities, in place.
void softmax(std::span<double> scores);

double dot(std::span<const float> a, std::span<const float> b);

// Rotary position embedding of one kind of layer: component j turns with component j + hd / 2 (docs/gemma4.md 3.4).
class Rotation {
 public:
  // divisors: [hd / 2], or empty for none.
  Rotation(uint32_t hd, double base, std::span<const float> divisors);
  // Rotates each head of a row at `position`, in place.
  void apply(std::span<float> heads, uint32_t position) const;  // [H * hd]

 private:
  std::vector<double> frequencies_;  // [hd / 2], radians per position
};

}  // namespace carat::exec::reference
