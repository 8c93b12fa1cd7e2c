#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/float16.h"
#include "exec/cpu/kernel_tables.h"
#include "support/random.h"

namespace carat::exec::cpu {
namespace {

class VectorMath : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& kernels_ = *GetParam();
  test::Random random_{3};
};

const std::vector<size_t> kLengths = {1, 3, 4, 15, 16, 17, 31, 64, 100, 1537};

TEST_P(VectorMath, RmsNorm) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = random_.normals(n, 2.0f), weight = random_.normals(n);
    double squares = 0.0;
    for (const float v : x) squares += double{v} * v;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    std::vector<float> plain(n), weighted(n), residual = random_.normals(n);
    const std::vector<float> before = residual;
    kernels_.rms_norm(x.data(), nullptr, 1e-6f, n, plain.data());
    kernels_.rms_norm(x.data(), weight.data(), 1e-6f, n, weighted.data());
    kernels_.add_rms_norm(x.data(), weight.data(), 1e-6f, n, residual.data());
    for (size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(plain[i], x[i] * factor, 1e-6 * std::abs(x[i] * factor));
      EXPECT_NEAR(weighted[i], x[i] * factor * weight[i], 1e-6 * std::abs(x[i] * factor * weight[i]));
      EXPECT_NEAR(residual[i], before[i] + x[i] * factor * weight[i], 1e-6);
    }
  }
}

TEST_P(VectorMath, GeluOverItsWholeRange) {
  std::vector<float> gate, up;
  for (double x = -30.0; x < 30.0; x += 0.0137) {
    gate.push_back(static_cast<float>(x));
    up.push_back(1.5f);
  }
  std::vector<float> out(gate.size());
  kernels_.gelu_multiply(gate.data(), up.data(), gate.size(), out.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    // 0.5 (1 + tanh u) = 1 / (1 + e^-2u), which keeps its digits where tanh is near -1.
    const double u = 0.7978845608028654 * x * (1.0 + 0.044715 * x * x);
    const double expected = 1.5 * x / (1.0 + std::exp(-2.0 * u));
    // Far below zero the exponent's own rounding grows with its size.
    EXPECT_NEAR(out[i], expected, std::abs(expected) * (3e-7 + 4e-7 * std::abs(u)) + 1e-30) << x;
  }
}

TEST_P(VectorMath, GeluOfValuesThatAreNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gate = {infinity, std::numeric_limits<float>::quiet_NaN()}, up = {1.0f, 1.0f};
  std::vector<float> out(2);
  kernels_.gelu_multiply(gate.data(), up.data(), 2, out.data());
  EXPECT_EQ(out[0], infinity);
  EXPECT_TRUE(std::isnan(out[1]));
}

TEST_P(VectorMath, SoftcapOverItsWholeRange) {
  std::vector<float> x;
  for (double v = -300.0; v < 300.0; v += 0.0311) x.push_back(static_cast<float>(v));
  for (double v = 1e-8; v < 30.0; v *= 1.01) x.push_back(static_cast<float>(v));
  std::vector<float> capped = x;
  EXPECT_TRUE(kernels_.softcap(capped.data(), 30.0f, capped.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = 30.0 * std::tanh(x[i] / 30.0);
    EXPECT_NEAR(capped[i], expected, 4e-7 * std::abs(expected)) << x[i];
  }
  std::vector<float> untouched = x;
  EXPECT_TRUE(kernels_.softcap(untouched.data(), 0.0f, untouched.size()));
  EXPECT_EQ(untouched, x);
}

TEST_P(VectorMath, SoftcapReportsWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (size_t where = 0; where < 37; ++where) {
      std::vector<float> x(37, 1.0f);
      x[where] = bad;
      EXPECT_FALSE(kernels_.softcap(x.data(), 30.0f, x.size()));
    }
  }
}

TEST_P(VectorMath, Softmax) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = random_.normals(n, 5.0f);
    double total = 0.0;
    for (const float v : x) total += std::exp(double{v});
    std::vector<float> probability = x;
    kernels_.softmax(probability.data(), n);
    for (size_t i = 0; i < n; ++i) {
      const double expected = std::exp(double{x[i]}) / total;
      EXPECT_NEAR(probability[i], expected, 5e-6 * expected);
    }
  }
}

TEST_P(VectorMath, Rotate) {
  for (const size_t half : {1u, 8u, 16u, 20u, 128u}) {
    const std::vector<float> x = random_.normals(2 * half);
    std::vector<float> cosines(half), sines(half), turned = x;
    for (size_t j = 0; j < half; ++j) {
      cosines[j] = std::cos(static_cast<float>(j));
      sines[j] = std::sin(static_cast<float>(j));
    }
    kernels_.rotate(turned.data(), cosines.data(), sines.data(), half);
    for (size_t j = 0; j < half; ++j) {
      EXPECT_NEAR(turned[j], double{x[j]} * cosines[j] - double{x[half + j]} * sines[j], 1e-6);
      EXPECT_NEAR(turned[half + j], double{x[j]} * sines[j] + double{x[half + j]} * cosines[j], 1e-6);
    }
  }
}

TEST_P(VectorMath, ScaleAddScaledAndHalves) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = random_.normals(n), y = random_.normals(n);
    std::vector<float> scaled = x, sum = y;
    std::vector<uint16_t> halves(n);
    kernels_.scale(scaled.data(), 0.3f, n);
    kernels_.add_scaled(x.data(), 0.3f, n, sum.data());
    kernels_.to_halves(x.data(), n, halves.data());
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(scaled[i], x[i] * 0.3f);
      EXPECT_NEAR(sum[i], double{y[i]} + double{x[i]} * 0.3f, 1e-6);
      EXPECT_EQ(halves[i], float_to_half(x[i]));
    }
  }
}

TEST_P(VectorMath, HalvesOfEveryMagnitude) {
  std::vector<float> x;
  for (float v = 1e-9f; v < 1e6f; v *= 1.003f) x.insert(x.end(), {v, -v});
  std::vector<uint16_t> halves(x.size());
  kernels_.to_halves(x.data(), x.size(), halves.data());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(halves[i], float_to_half(x[i])) << x[i];
}

INSTANTIATE_TEST_SUITE_P(Tables, VectorMath, testing::ValuesIn(tables()), table_name);

}  // namespace
}  // namespace carat::exec::cpu
