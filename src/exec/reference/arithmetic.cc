#include "exec/reference/arithmetic.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "quant/format.h"

namespace carat::exec::reference {
namespace {

// Rows handled together in linear(): enough to use each dequantised weight many times.
constexpr size_t kTile = 32;
constexpr size_t kOutputsPerTask = 16;

// Rows [first, first + kTile) of x as [width, kTile] doubles, zeros where there is no row: the loop over rows becomes
// the inner one, so each sum still adds in the order of i.
void transpose_tile(const Block& x, size_t first, std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  const size_t count = std::min(kTile, x.rows() - first);
  for (size_t r = 0; r < count; ++r) {
    const auto row = x.row(first + r);
    for (size_t i = 0; i < x.width(); ++i) out[i * kTile + r] = row[i];
  }
}

std::array<double, kTile> weighted_sums(std::span<const float> weights, std::span<const double> tile) {
  std::array<double, kTile> sums{};
  for (size_t i = 0; i < weights.size(); ++i) {
    const double w = weights[i];
    const double* values = &tile[i * kTile];
    for (size_t r = 0; r < kTile; ++r) sums[r] += w * values[r];
  }
  return sums;
}

}  // namespace

Block gather(const Block& block, std::span<const size_t> rows) {
  Block picked(rows.size(), block.width());
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto source = block.row(rows[r]);
    std::copy(source.begin(), source.end(), picked.row(r).begin());
  }
  return picked;
}

Block linear(ThreadPool& pool, const model::Matrix& weight, const Block& x) {
  CARAT_CHECK(weight.cols == x.width() && weight.slices == 1);
  const size_t tiles = (x.rows() + kTile - 1) / kTile;
  const size_t tile_size = kTile * x.width();
  std::vector<double> columns(tiles * tile_size);
  for (size_t t = 0; t < tiles; ++t) transpose_tile(x, t * kTile, std::span(columns).subspan(t * tile_size, tile_size));

  Block y(x.rows(), weight.rows);
  const auto dequantise = quant::info(weight.format).dequantise;
  pool.parallel_for(weight.rows, kOutputsPerTask, [&](size_t begin, size_t end, unsigned) {
    std::vector<float> weights(weight.cols);
    for (size_t o = begin; o < end; ++o) {
      dequantise(weight.row(o).data(), weights.data(), weights.size());
      for (size_t t = 0; t < tiles; ++t) {
        const auto sums = weighted_sums(weights, std::span(columns).subspan(t * tile_size, tile_size));
        const size_t count = std::min(kTile, x.rows() - t * kTile);
        for (size_t r = 0; r < count; ++r) y.row(t * kTile + r)[o] = static_cast<float>(sums[r]);
      }
    }
  });
  return y;
}

void rms_norm(std::span<float> x, std::span<const float> weight, float eps) {
  double squares = 0.0;
  for (const float value : x) squares += double{value} * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(x[i] * scale * (weight.empty() ? 1.0 : weight[i]));
  }
}

Block rms_norm(const Block& x, std::span<const float> weight, float eps) {
  Block normed = x;
  for (size_t r = 0; r < normed.rows(); ++r) rms_norm(normed.row(r), weight, eps);
  return normed;
}

void rms_norm_heads(Block& x, uint32_t head_width, std::span<const float> weight, float eps) {
  for (size_t r = 0; r < x.rows(); ++r) {
    for (size_t first = 0; first < x.width(); first += head_width) {
      rms_norm(x.row(r).subspan(first, head_width), weight, eps);
    }
  }
}

double gelu(double x) {
  constexpr double kSqrt2OverPi = 0.7978845608028654;
  return 0.5 * x * (1.0 + std::tanh(kSqrt2OverPi * x * (1.0 + 0.044715 * x * x)));
}

Block geglu(const Block& gate, const Block& up) {
  Block product(gate.rows(), gate.width());
  for (size_t r = 0; r < gate.rows(); ++r) {
    for (size_t i = 0; i < gate.width(); ++i) {
      product.row(r)[i] = static_cast<float>(gelu(gate.row(r)[i]) * up.row(r)[i]);
    }
  }
  return product;
}

void add(Block& x, const Block& y) {
  for (size_t r = 0; r < x.rows(); ++r) {
    for (size_t i = 0; i < x.width(); ++i) x.row(r)[i] += y.row(r)[i];
  }
}

void softmax(std::span<double> scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double total = 0.0;
  for (double& score : scores) {
    score = std::exp(score - largest);
    total += score;
  }
  for (double& score : scores) score /= total;
}

double dot(std::span<const float> a, std::span<const float> b) {
  // Four sums, always in the same order: a single one would spend the time of long prompts waiting for additions.
  std::array<double, 4> sums{};
  size_t i = 0;
  for (; i + 4 <= a.size(); i += 4) {
    for (size_t k = 0; k < 4; ++k) sums[k] += double{a[i + k]} * b[i + k];
  }
  for (; i < a.size(); ++i) sums[0] += double{a[i]} * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

Rotation::Rotation(uint32_t hd, double base, std::span<const float> divisors) : frequencies_(hd / 2) {
  for (size_t j = 0; j < frequencies_.size(); ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / hd;
    frequencies_[j] = std::pow(base, exponent) / (divisors.empty() ? 1.0 : divisors[j]);
  }
}

void Rotation::apply(std::span<float> heads, uint32_t position) const {
  const size_t half = frequencies_.size();
  for (size_t j = 0; j < half; ++j) {
    const double angle = position * frequencies_[j];
    const double c = std::cos(angle), s = std::sin(angle);
    for (size_t head = 0; head < heads.size(); head += 2 * half) {
      float& low = heads[head + j];
      float& high = heads[head + j + half];
      const double a = low, b = high;
      low = static_cast<float>(a * c - b * s);
      high = static_cast<float>(a * s + b * c);
    }
  }
}

}  // namespace carat::exec::reference
