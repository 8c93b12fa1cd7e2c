// e4m3 copies of weights, rounded activations and their products, against references bit for bit or in double.
#include <cmath>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/elementwise/feed_forward.h"
#include "exec/cuda/kernels/elementwise/residual_problem.h"
#include "exec/cuda/kernels/gemm/e4m3_reference.h"
#include "exec/cuda/kernels/gemm/fp8_rows.h"
#include "exec/cuda/kernels/gemm/gemm.h"
#include "exec/cuda/weights/fp8_copy.h"
#include "exec/cuda/weights/packed_matrix.h"

namespace carat::cuda {
namespace {

// Rounding to 3 bits of mantissa changes a value by up to a 16th, and values of all sizes by 2.6% in the mean square.
constexpr double kRounding = 0.03;

struct DeviceFp8 {
  DeviceArray<uint8_t> values;
  DeviceArray<float> scales;
  DeviceFp8(size_t rows, size_t cols) : values(poisoned<uint8_t>(rows * cols)), scales(poisoned<float>(rows)) {}
  Fp8Rows rows() const { return {values.data(), scales.data()}; }
  std::vector<double> dequantised(size_t cols) const {
    const auto bytes = download(values);
    const auto factors = download(scales);
    std::vector<double> result(bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) result[i] = double{e4m3_value(bytes[i])} * factors[i / cols];
    return result;
  }
};

double relative(const std::vector<double>& found, const std::vector<double>& wanted) {
  double errors = 0.0, squares = 0.0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    errors += (found[i] - wanted[i]) * (found[i] - wanted[i]);
    squares += wanted[i] * wanted[i];
  }
  return std::sqrt(errors / squares);
}

class Fp8Test : public GpuTest {
 protected:
  void check_rounding(uint32_t rows, uint32_t cols, std::vector<float> values) const {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    const auto typed = to_bfloats(values);
    values = to_floats(typed);
    const auto device = upload(typed);
    const DeviceFp8 out(rows, cols);
    round_fp8(device.data(), rows, cols, out.rows(), how_);
    synchronise();
    const E4M3Rows wanted(values, rows, cols);
    EXPECT_EQ(download(out.scales), wanted.scales);
    EXPECT_EQ(download(out.values), wanted.values);
  }
};

TEST_F(Fp8Test, SmallRoundingIsThatOfTheReference) {
  for (const uint32_t rows : {1u, 2u, 3u, 7u, 31u, 33u}) {
    for (const uint32_t cols : {16u, 96u, 2064u}) {
      check_rounding(rows, cols, test::Random(rows + cols).normals(size_t{rows} * cols, 3.0f));
    }
  }
}

TEST_F(Fp8Test, RealWidths) {
  for (const uint32_t rows : {511u, 513u}) {
    for (const uint32_t cols : {2560u, 3840u}) {
      check_rounding(rows, cols, test::Random(rows).normals(size_t{rows} * cols, 0.1f));
    }
  }
  for (const uint32_t cols : {15360u, 21504u, kFp8MostColumns}) {
    check_rounding(2, cols, test::Random(cols).normals(size_t{2} * cols, 0.1f));
  }
}

// Zero rows, rows next to nothing, the largest values there are, and all the values e4m3 has, halves between them too.
TEST_F(Fp8Test, SmallExtremes) {
  constexpr uint32_t kCols = 512;
  std::vector<float> values = test::Random(1).normals(size_t{6} * kCols, 1.0f);
  for (uint32_t c = 0; c < kCols; ++c) {
    values[c] = 0.0f;
    values[kCols + c] *= 1e-34f;
    values[2 * kCols + c] *= 5e37f;
    values[3 * kCols + c] *= 1e-20f;
    values[4 * kCols + c] = c < 127 ? e4m3_value(static_cast<uint8_t>(c)) : 0.5f * static_cast<float>(c - 127);
    values[5 * kCols + c] = c == 77 ? -448.0f : 0.0f;
  }
  check_rounding(6, kCols, values);
}

TEST_F(Fp8Test, SmallBrokenRowsShow) {
  constexpr uint32_t kRows = 3, kCols = 64;
  for (const float broken : {NAN, INFINITY}) {
    std::vector<float> values(kRows * kCols, 1.0f);
    values[kCols + 5] = broken;
    const auto device = upload(to_bfloats(values));
    const DeviceFp8 out(kRows, kCols);
    round_fp8(device.data(), kRows, kCols, out.rows(), how_);
    synchronise();
    const auto scales = download(out.scales);
    EXPECT_TRUE(std::isfinite(scales[0]) && !std::isfinite(scales[1]) && std::isfinite(scales[2]));
  }
  EXPECT_THROW(round_fp8(nullptr, 1, 24, {}, how_), std::logic_error);
  EXPECT_THROW(round_fp8(nullptr, 1, kFp8MostColumns + 16, {}, how_), std::logic_error);
}

TEST_F(Fp8Test, SmallResidualNorm) {
  for (const ResidualKind kind : {ResidualKind::kPlain, ResidualKind::kDelta, ResidualKind::kExperts}) {
    for (const uint32_t d : {32u, 96u, 1056u, 2560u}) {
      constexpr uint32_t kRows = 3;
      const ResidualProblem<__nv_bfloat16> problem(kRows, d, kind, true, d);
      const DeviceFp8 out(kRows, d);
      const auto x = poisoned<float>(size_t{kRows} * d);
      residual_norm_fp8(problem.job(x.data()), kRows, out.rows(), how_);
      synchronise();
      EXPECT_LT(relative(out.dequantised(d), problem.result()), kRounding) << d;
      EXPECT_LT(difference(download(x), problem.stream()).relative, 1e-6) << d;
    }
  }
}

TEST_F(Fp8Test, SmallGeglu) {
  for (const uint32_t F : {48u, 2064u, 10240u}) {
    constexpr uint32_t kRows = 5;
    const RandomValues<__nv_bfloat16> gate_up(size_t{kRows} * 2 * F, 1.0f, F);
    const auto act = poisoned<__nv_bfloat16>(size_t{kRows} * F);
    geglu(gate_up.device.data(), kRows, F, act.data(), how_);
    const DeviceFp8 apart(kRows, F), together(kRows, F);
    round_fp8(act.data(), kRows, F, apart.rows(), how_);
    geglu_fp8(gate_up.device.data(), kRows, F, together.rows(), how_);
    synchronise();
    EXPECT_EQ(download(together.scales), download(apart.scales));
    EXPECT_EQ(download(together.values), download(apart.values));
  }
}

TEST_F(Fp8Test, SmallWeightsOfEveryPacking) {
  for (const quant::FormatInfo& format : one_format_per_packing()) {
    for (const uint32_t cols : {256u, 2560u}) {
      SCOPED_TRACE(testing::Message() << format.name << " " << cols);
      const PackedMatrix matrix(format.format, 48, cols, cols);
      const DeviceFp8 out(48, cols);
      unpack_fp8(matrix.view(), out.rows(), how_.stream);
      synchronise();
      const E4M3Rows wanted(matrix.values(), 48, cols);
      EXPECT_EQ(download(out.scales), wanted.scales);
      EXPECT_EQ(download(out.values), wanted.values);
    }
  }
}

class Fp8ProductTest : public Fp8Test {
 protected:
  void SetUp() override {
    Fp8Test::SetUp();
    if (IsSkipped()) return;
    if (attribute(cudaDevAttrComputeCapabilityMajor) != 9 || !library_has_row_scaled_fp8()) {
      GTEST_SKIP() << "skipped: no sm_90, or a library without such products";
    }
    gemm_ = std::make_unique<Gemm>(size_t{32} << 20);
  }

  void check_product(uint32_t m, uint32_t n, uint32_t k) {
    SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
    const auto a = test::Random(m + k).normals(size_t{m} * k, 2.0f), w = test::Random(n).normals(size_t{n} * k, 0.1f);
    const E4M3Rows rounded_a(a, m, k), rounded_w(w, n, k);
    const auto av = upload(rounded_a.values), wv = upload(rounded_w.values);
    const auto as = upload(rounded_a.scales), ws = upload(rounded_w.scales);
    std::vector<double> of_rounded(size_t{m} * n), of_exact(size_t{m} * n);
    on_host_cores(n, [&](size_t o) {
      for (size_t r = 0; r < m; ++r) {
        of_rounded[r * n + o] = dot_double(&rounded_a.exact[r * k], &rounded_w.exact[o * k], k);
        of_exact[r * n + o] = dot_double(&a[r * k], &w[o * k], k);
      }
    });
    const DeviceArray<__nv_bfloat16> out(size_t{m} * n, "test output");
    const auto found = run_twice<__nv_bfloat16>(out, [&] {
      gemm_->run(Fp8Matrix{av.data(), as.data()}, Fp8Matrix{wv.data(), ws.data()}, out.data(), m, n, k, how_.stream);
    });
    // Sums in fp32 (not those of the tensor core alone, which are shorter) and one rounding to bf16.
    EXPECT_LT(difference(found, of_rounded).relative, 3e-3);
    EXPECT_LT(difference(found, of_exact).relative, 1.5 * kRounding);
  }

  std::unique_ptr<Gemm> gemm_;
};

TEST_F(Fp8ProductTest, SmallRaggedRows) {
  for (const uint32_t m : {1u, 2u, 3u, 7u, 16u, 31u, 33u}) check_product(m, 256, 704);
  check_product(5, 16, 16);
  check_product(48, 1040, 96);
}

TEST_F(Fp8ProductTest, RealWidths) {
  for (const uint32_t m : {511u, 512u, 513u}) check_product(m, 512, 2560);
  check_product(64, 512, 10240);
}

TEST_F(Fp8ProductTest, SearchedProductsAreRight) {
  const auto a = test::Random(1).normals(size_t{256} * 2560, 1.0f),
             w = test::Random(2).normals(size_t{512} * 2560, 0.1f);
  const E4M3Rows rounded_a(a, 256, 2560), rounded_w(w, 512, 2560);
  const auto av = upload(rounded_a.values), wv = upload(rounded_w.values);
  const auto as = upload(rounded_a.scales), ws = upload(rounded_w.scales);
  const auto scratch = poisoned<__nv_bfloat16>(size_t{256} * 512);
  gemm_->search({256, 512, 2560, GemmElement::kE4M3, GemmElement::kBF16},
                {av.data(), as.data(), {{wv.data(), ws.data()}}, scratch.data()}, 0.0, how_.stream);
  check_product(256, 512, 2560);
}

}  // namespace
}  // namespace carat::cuda
