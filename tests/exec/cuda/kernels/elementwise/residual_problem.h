#pragma once

// Inputs of the residual step between two products of a layer, and its result in double precision.
#include <type_traits>
#include <vector>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/gemv/activation.h"

namespace carat::cuda {

enum class ResidualKind { kPlain, kDelta, kExperts };  // what joins the stream

template <typename Delta>
class ResidualProblem {
 public:
  ResidualProblem(uint32_t rows, uint32_t d, ResidualKind kind, bool with_norm, uint64_t seed)
      : rows_(rows),
        d_(d),
        kind_(kind),
        with_norm_(with_norm),
        x_(size_t{rows} * d, 10.0f, seed),
        delta_(size_t{rows} * d, 3.0f, seed + 1),
        experts_(size_t{rows} * d, 0.5f, seed + 2),
        delta_norm_(d, 1.0f, seed + 3),
        dense_norm_(d, 1.0f, seed + 4),
        experts_norm_(d, 1.0f, seed + 5),
        next_norm_(d, 1.0f, seed + 6) {
    for (uint32_t r = 0; r < rows_; ++r) add_row(r);
  }

  ResidualNormOf<Delta> job(float* x_out) const {
    ResidualNormOf<Delta> job;
    job.x = x_.device.data();
    job.x_out = x_out;
    job.eps = kEps;
    job.d = d_;
    if (kind_ != ResidualKind::kPlain) {
      job.delta = delta_.device.data();
      job.delta_norm = delta_norm_.device.data();
      job.scale = kScale;
    }
    if (kind_ == ResidualKind::kExperts) {
      job.dense_norm = dense_norm_.device.data();
      job.experts = experts_.device.data();
      job.experts_norm = experts_norm_.device.data();
    }
    if (with_norm_) job.next_norm = next_norm_.device.data();
    return job;
  }

  const std::vector<double>& stream() const { return stream_; }  // [rows, d], what x_out must hold
  const std::vector<double>& result() const { return result_; }  // [rows, d], normalised where asked for
  const std::vector<float>& x() const { return x_.floats; }

 private:
  static constexpr float kEps = 1e-6f, kScale = 0.7f;

  static double rms_factor(const std::vector<double>& row) {
    return 1.0 /
           std::sqrt(dot_double(row.data(), row.data(), row.size()) / static_cast<double>(row.size()) + double{kEps});
  }
  std::vector<double> row_of(const std::vector<float>& values, uint32_t r) const {
    return {values.begin() + static_cast<ptrdiff_t>(size_t{r} * d_),
            values.begin() + static_cast<ptrdiff_t>((r + size_t{1}) * d_)};
  }

  void add_row(uint32_t r) {
    std::vector<double> v = row_of(x_.floats, r);
    if (kind_ != ResidualKind::kPlain) {
      std::vector<double> f = row_of(delta_.floats, r);
      if (kind_ == ResidualKind::kExperts) {
        const std::vector<double> g = row_of(experts_.floats, r);
        const double dense = rms_factor(f), experts = rms_factor(g);
        for (uint32_t c = 0; c < d_; ++c) {
          f[c] = f[c] * dense * double{dense_norm_.floats[c]} + g[c] * experts * double{experts_norm_.floats[c]};
        }
      }
      const double factor = rms_factor(f);
      for (uint32_t c = 0; c < d_; ++c) v[c] = (v[c] + f[c] * factor * double{delta_norm_.floats[c]}) * double{kScale};
    }
    stream_.insert(stream_.end(), v.begin(), v.end());
    if (with_norm_) {
      const double factor = rms_factor(v);
      for (uint32_t c = 0; c < d_; ++c) v[c] *= factor * double{next_norm_.floats[c]};
    }
    result_.insert(result_.end(), v.begin(), v.end());
  }

  uint32_t rows_, d_;
  ResidualKind kind_;
  bool with_norm_;
  RandomValues<float> x_;
  RandomValues<Delta> delta_, experts_;
  RandomValues<float> delta_norm_, dense_norm_, experts_norm_, next_norm_;
  std::vector<double> stream_, result_;
};

}  // namespace carat::cuda
