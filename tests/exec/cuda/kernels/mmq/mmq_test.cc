#include "exec/cuda/kernels/mmq/mmq.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/elementwise/residual_problem.h"
#include "exec/cuda/weights/packed_matrix.h"

namespace carat::cuda {

using quant::Format;

namespace {

constexpr MmqActivations kBoth[] = {MmqActivations::kInt8, MmqActivations::kInt16};

// Rounded rows in device memory. All bits are set at first: what a kernel must write is not zero by accident, and rows
// that only pad a tile have NaN scales.
class DeviceRows {
 public:
  DeviceRows(uint32_t rows, uint32_t cols, MmqActivations activations)
      : rows_(rows),
        cols_(cols),
        bytes_(static_cast<uint32_t>(activations)),
        quants_(poisoned<int8_t>(size_t{mmq_padded_rows(rows)} * chunks() * kMmqChunk * bytes_)),
        scales_(poisoned<float>(size_t{mmq_padded_rows(rows)} * chunks() * 4)),
        sums_(poisoned<float>(scales_.size())),
        view_{activations, quants_.data(), scales_.data(), sums_.data()} {}

  const MmqRows& view() const { return view_; }
  uint32_t width() const { return chunks() * kMmqChunk; }
  uint32_t cols() const { return cols_; }

  // What a product with these rows reads, [rows, cols], after it has been checked that the columns beyond are zero,
  // that scales have at most 15 significant bits and that the sums are right.
  std::vector<double> values() {
    quants = download(quants_);
    scales = download(scales_);
    const auto sums = download(sums_);
    std::vector<double> result(size_t{rows_} * cols_);
    for (size_t r = 0; r < rows_; ++r) {
      for (uint32_t block = 0; block < width() / 32; ++block) {
        const float scale = scales[scale_index(r, block)];
        uint32_t bits = 0;
        std::memcpy(&bits, &scale, sizeof bits);
        EXPECT_EQ(bits & 0x1ffu, 0u) << "row " << r << ", block " << block;
        int sum = 0;
        for (uint32_t e = 0; e < 32; ++e) {
          const uint32_t column = block * 32 + e;
          const int q = quant(r, column);
          sum += q;
          if (column < cols_) {
            result[r * cols_ + column] = static_cast<double>(scale) * q;
          } else {
            EXPECT_EQ(q, 0) << "row " << r << ", column " << column;
          }
        }
        EXPECT_EQ(sums[scale_index(r, block)], scale * static_cast<float>(sum)) << "row " << r << ", block " << block;
      }
    }
    return result;
  }
  int quant(size_t row, uint32_t column) const {
    const size_t at = row * width() * bytes_ + size_t{column / kMmqChunk} * kMmqChunk * bytes_ + column % kMmqChunk;
    return bytes_ == 1 ? quants[at] : 128 * quants[at] + quants[at + kMmqChunk];
  }
  double scale_of(size_t row, uint32_t column) const { return scales[scale_index(row, column / 32)]; }

  std::vector<int8_t> quants;  // as values() found them
  std::vector<float> scales;

 private:
  uint32_t chunks() const { return mmq_chunks(cols_); }
  size_t scale_index(size_t row, uint32_t block) const {
    return (row / 16 * chunks() * 4 + block) * 16 + mmq_scale_place(static_cast<uint32_t>(row));
  }
  uint32_t rows_, cols_, bytes_;
  DeviceArray<int8_t> quants_;
  DeviceArray<float> scales_, sums_;
  MmqRows view_;
};

// Every value within half a step of what it rounds, and the step no larger than the block needs. `slack` is how far the
// kernel's own arithmetic may be off, relative to the block's largest value (or to one, where that is less: the tanh of
// GELU is exact to that, however little is left of it).
void expect_rounded(DeviceRows& found, const std::vector<double>& wanted, uint32_t rows, MmqActivations activations,
                    double slack) {
  const double levels = activations == MmqActivations::kInt8 ? 127.0 : 16319.0;
  const uint32_t cols = found.cols();
  const std::vector<double> values = found.values();
  for (size_t r = 0; r < rows; ++r) {
    for (uint32_t first = 0; first < cols; first += 32) {
      double largest = 0.0;
      const uint32_t end = std::min(cols, first + 32);
      for (uint32_t c = first; c < end; ++c) largest = std::max(largest, std::abs(wanted[r * cols + c]));
      const double step = found.scale_of(r, first), off = slack * std::max(largest, 1.0);
      ASSERT_NEAR(step, largest / levels, (largest / 8192.0 + off) / levels) << "row " << r << ", column " << first;
      for (uint32_t c = first; c < end; ++c) {
        ASSERT_NEAR(values[r * cols + c], wanted[r * cols + c], 0.5001 * step + off) << "row " << r << ", column " << c;
      }
    }
  }
}

class MmqTest : public GpuTest {
 protected:
  // Rounded random rows with the values they have.
  struct Input {
    DeviceRows rows;
    RandomValues<__nv_bfloat16> exact;
    std::vector<double> rounded;
    Input(uint32_t count, uint32_t cols, MmqActivations activations, const LaunchConfig& launch)
        : rows(count, cols, activations), exact(size_t{count} * cols, 2.0f, count + cols) {
      quantise_mmq(exact.device.data(), count, cols, rows.view(), launch);
      check(cudaStreamSynchronize(launch.stream), "quantise_mmq");
      rounded = rows.values();
    }
  };

  // [rows, outputs] of one matrix as floats.
  std::vector<float> product_of(const PackedMatrix& matrix, const DeviceRows& rows, uint32_t count) const {
    const uint32_t n = matrix.view().rows;
    const auto out = poisoned<float>(size_t{count} * n);
    const MmqJob job{.x = rows.view(),
                     .part = {{matrix.view(), 0}},
                     .parts = 1,
                     .rows = count,
                     .leading = n,
                     .out_float = out.data()};
    mmq(job, sm_count_, how_);
    synchronise();
    return download(out);
  }

  // [rows, outputs], and |w| |x| beside it, which bounds what fp32 sums may be off.
  struct Expected {
    std::vector<double> values, sizes;
  };
  static Expected expected_of(const PackedMatrix& matrix, const std::vector<double>& x, uint32_t rows) {
    const uint32_t n = matrix.view().rows, k = matrix.view().cols;
    Expected expected{std::vector<double>(size_t{rows} * n), std::vector<double>(size_t{rows} * n)};
    std::vector<double> norms(rows);
    for (size_t r = 0; r < rows; ++r) norms[r] = norm_double(&x[r * k], k);
    on_host_cores(n, [&](size_t o) {
      const double norm = norm_double(matrix.row(o), k);
      for (size_t r = 0; r < rows; ++r) {
        expected.values[r * n + o] = dot_double(&x[r * k], matrix.row(o), k);
        expected.sizes[r * n + o] = norm * norms[r];
      }
    });
    return expected;
  }

  // The first `rows` of the input through every tile height there is, in fp32 and in bf16.
  void check_product(const PackedMatrix& matrix, const Input& input, const Expected& expected, uint32_t rows) {
    const uint32_t n = matrix.view().rows, leading = n + 3;
    MmqJob job{.x = input.rows.view(), .part = {{matrix.view(), 1}}, .parts = 1, .rows = rows, .leading = leading};
    for (const uint32_t tile_rows : kMmqTileRows) {
      if (mmq_memory(matrix.view().packing, job.x.activations, tile_rows).slots == 0) continue;
      SCOPED_TRACE(testing::Message() << rows << " x " << n << " x " << matrix.view().cols << ", tiles of " << tile_rows
                                      << " rows, " << static_cast<uint32_t>(job.x.activations) << " bytes a value");
      const DeviceArray<float> floats(size_t{rows} * leading, "test output");
      job.out = nullptr;
      job.out_float = floats.data();
      compare(run_twice<float>(floats, [&] { mmq(job, sm_count_, how_, tile_rows); }), leading, expected, n, 0.0);
      const DeviceArray<__nv_bfloat16> bfloats(size_t{rows} * leading, "test output");
      job.out = bfloats.data();
      job.out_float = nullptr;
      compare(run_twice<__nv_bfloat16>(bfloats, [&] { mmq(job, sm_count_, how_, tile_rows); }), leading, expected, n,
              1.0 / 250.0);
      if (HasFailure()) return;
    }
  }

  // Columns 1 ... n of each row are results, the others must be untouched.
  template <typename T>
  static void compare(const std::vector<T>& out, uint32_t leading, const Expected& expected, uint32_t n,
                      double relative) {
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t r = i / leading, c = i % leading;
      if (c == 0 || c > n) {
        ASSERT_TRUE(std::isnan(value_of(out[i]))) << "row " << r << ": wrote beyond the results";
        continue;
      }
      const double wanted = expected.values[r * n + c - 1];
      ASSERT_NEAR(value_of(out[i]), wanted, 2e-6 * expected.sizes[r * n + c - 1] + relative * std::abs(wanted))
          << "row " << r << ", column " << c - 1;
    }
  }

  void check_format(Format format, uint32_t n, uint32_t k, const std::vector<uint32_t>& rows) {
    SCOPED_TRACE(quant::info(format).name);
    const PackedMatrix matrix(format, n, k, n + k);
    const uint32_t most = *std::max_element(rows.begin(), rows.end());
    for (const MmqActivations activations : kBoth) {
      const Input input(most, k, activations, how_);
      const Expected expected = expected_of(matrix, input.rounded, most);
      for (const uint32_t count : rows) {
        check_product(matrix, input, expected, count);
        if (HasFailure()) return;
      }
    }
  }
};

TEST_F(MmqTest, SmallRounding) {
  for (const MmqActivations activations : kBoth) {
    for (const uint32_t cols : {1u, 31u, 128u, 300u, 1056u, 2560u}) {
      SCOPED_TRACE(testing::Message() << cols << " columns");
      constexpr uint32_t kRows = 5;
      const RandomValues<__nv_bfloat16> values(size_t{kRows} * cols, 50.0f, cols);
      DeviceRows rows(kRows, cols, activations);
      quantise_mmq(values.device.data(), kRows, cols, rows.view(), how_);
      synchronise();
      expect_rounded(rows, {values.floats.begin(), values.floats.end()}, kRows, activations, 1e-7);
    }
  }
}

TEST_F(MmqTest, SmallZerosAndTinyValuesRoundToZero) {
  for (const MmqActivations activations : kBoth) {
    std::vector<float> values(96, 0.0f);
    values[40] = 1e-37f;
    values[70] = 3.0f;
    const auto device = upload(to_bfloats(values));
    DeviceRows rows(1, 96, activations);
    quantise_mmq(device.data(), 1, 96, rows.view(), how_);
    synchronise();
    const auto found = rows.values();
    for (size_t c = 0; c < found.size(); ++c) EXPECT_NEAR(found[c], c == 70 ? 3.0 : 0.0, 1e-3) << c;
    EXPECT_EQ(rows.scale_of(0, 0), 0.0);
    EXPECT_EQ(rows.scale_of(0, 32), 0.0);
  }
}

// A broken activation must show in every result of its row and in no other.
TEST_F(MmqTest, SmallNonFiniteActivationsStayVisible) {
  constexpr uint32_t kRows = 3, kCols = 64, kN = 8;
  const PackedMatrix matrix(Format::kQ8_0, kN, kCols, 1);
  for (const MmqActivations activations : kBoth) {
    for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(kRows * kCols, 1.0f);
      values[kCols + 37] = broken;
      const auto device = upload(to_bfloats(values));
      const DeviceRows rows(kRows, kCols, activations);
      quantise_mmq(device.data(), kRows, kCols, rows.view(), how_);
      const std::vector<float> found = product_of(matrix, rows, kRows);
      for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(std::isfinite(found[i]), i / kN != 1) << i;
    }
  }
}

TEST_F(MmqTest, SmallResidualNorm) {
  for (const MmqActivations activations : kBoth) {
    for (const ResidualKind kind : {ResidualKind::kPlain, ResidualKind::kDelta, ResidualKind::kExperts}) {
      for (const uint32_t d : {96u, 1027u, 2560u, 5376u}) {
        SCOPED_TRACE(testing::Message() << d << " columns, kind " << static_cast<int>(kind));
        constexpr uint32_t kRows = 3;
        const ResidualProblem<__nv_bfloat16> problem(kRows, d, kind, true, d);
        const auto x_out = poisoned<float>(size_t{kRows} * d);
        DeviceRows rows(kRows, d, activations);
        residual_norm_mmq(problem.job(x_out.data()), kRows, rows.view(), how_);
        synchronise();
        expect_rounded(rows, problem.result(), kRows, activations, 2e-6);
        EXPECT_LT(difference(download(x_out), problem.stream()).relative, 1e-6);
      }
    }
  }
}

TEST_F(MmqTest, SmallGeglu) {
  for (const MmqActivations activations : kBoth) {
    for (const uint32_t F : {13u, 128u, 704u, 2112u, 10240u}) {
      constexpr uint32_t kRows = 3;
      const RandomValues<__nv_bfloat16> gate_up(size_t{kRows} * 2 * F, 2.0f, F);
      std::vector<double> wanted;
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t c = 0; c < F; ++c) {
          wanted.push_back(gelu_double(gate_up.floats[r * 2 * F + c]) * double{gate_up.floats[r * 2 * F + F + c]});
        }
      }
      DeviceRows rows(kRows, F, activations);
      geglu_mmq(gate_up.device.data(), kRows, F, rows.view(), how_);
      synchronise();
      expect_rounded(rows, wanted, kRows, activations, 2e-6);
    }
  }
}

TEST_F(MmqTest, SmallGeluTimes) {
  for (const MmqActivations activations : kBoth) {
    for (const uint32_t P : {1u, 64u, 256u, 300u}) {
      constexpr uint32_t kRows = 5;
      const uint32_t leading = 3 * P + 1;
      const RandomValues<__nv_bfloat16> gate(size_t{kRows} * P, 2.0f, P);
      const RandomValues<float> factors(size_t{kRows} * leading, 1.0f, P + 1);
      std::vector<double> wanted;
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t c = 0; c < P; ++c) {
          wanted.push_back(gelu_double(gate.floats[r * P + c]) * double{factors.floats[r * leading + c]});
        }
      }
      DeviceRows rows(kRows, P, activations);
      gelu_times_mmq(gate.device.data(), factors.device.data(), leading, kRows, P, rows.view(), how_);
      synchronise();
      expect_rounded(rows, wanted, kRows, activations, 2e-6);
    }
  }
}

TEST_F(MmqTest, SmallProducts) {
  for (const Format format : {Format::kQ8_0, Format::kQ5_0, Format::kIQ4_NL, Format::kQ4_0}) {
    for (const uint32_t k : {32u, 96u, 288u, 704u}) check_format(format, 40, k, {1, 33});
    check_format(format, 129, 256, {7, 129});
  }
  for (const Format format : {Format::kQ4_K, Format::kQ5_K, Format::kQ6_K}) {
    check_format(format, 40, 256, {1, 33});
    check_format(format, 130, 768, {7, 129});
  }
}

TEST_F(MmqTest, RaggedRows) {
  for (const Format format : {Format::kQ8_0, Format::kQ4_0, Format::kQ4_K, Format::kQ5_K, Format::kQ6_K}) {
    check_format(format, 200, 512, {1, 7, 31, 33, 127, 128, 129, 511, 513});
  }
}

TEST_F(MmqTest, RealWidths) {
  check_format(Format::kQ8_0, 256, 10240, {513});
  check_format(Format::kQ4_0, 640, 3840, {300});
  check_format(Format::kQ4_0, 64, 21504, {65});
  check_format(Format::kQ4_K, 2560, 2560, {130});
  check_format(Format::kQ6_K, 256, 10240, {257});
  // More than one band of row tiles.
  check_format(Format::kQ8_0, 300, 256, {2100});
}

// The extremes of int8 on both sides: sums are at most 32 * 128 * 127, which the float trick must hold.
TEST_F(MmqTest, SmallLargestIntegers) {
  constexpr uint32_t kN = 16, kK = 64, kRows = 17;
  const quant::FormatInfo& format = quant::info(Format::kQ8_0);
  for (const int sign : {-1, 1}) {
    std::vector<std::byte> raw(kN * format.row_bytes(kK), static_cast<std::byte>(sign < 0 ? -128 : 127));
    for (size_t at = 0; at < raw.size(); at += format.bytes) {
      raw[at] = std::byte{0x00};
      raw[at + 1] = std::byte{0x3c};  // a scale of 1
    }
    const PackedMatrix matrix(format, raw, kN, kK, {0});
    for (const MmqActivations activations : kBoth) {
      const auto device = upload(to_bfloats(std::vector<float>(kRows * kK, 127.0f)));
      DeviceRows rows(kRows, kK, activations);
      quantise_mmq(device.data(), kRows, kK, rows.view(), how_);
      synchronise();
      const std::vector<double> values = rows.values();
      const std::vector<float> found = product_of(matrix, rows, kRows);
      const Expected expected = expected_of(matrix, values, kRows);
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected.values[i], 1e-6 * std::abs(expected.values[i])) << i;
      }
    }
  }
}

TEST_F(MmqTest, SmallPartsOfOneLaunch) {
  constexpr uint32_t kK = 512, kRows = 70, kLeading = 600;
  const PackedMatrix q(Format::kQ4_0, 256, kK, 1), k(Format::kQ4_0, 100, kK, 2), v(Format::kQ4_0, 130, kK, 3);
  const PackedMatrix* matrices[] = {&q, &k, &v};
  const uint32_t columns[] = {0, 264, 400};
  for (const MmqActivations activations : kBoth) {
    const Input input(kRows, kK, activations, how_);
    const DeviceArray<__nv_bfloat16> out(size_t{kRows} * kLeading, "test output");
    MmqJob job{.x = input.rows.view(), .parts = 3, .rows = kRows, .leading = kLeading, .out = out.data()};
    for (size_t p = 0; p < 3; ++p) job.part[p] = {matrices[p]->view(), columns[p]};
    const auto found = run_twice<__nv_bfloat16>(out, [&] { mmq(job, sm_count_, how_); });
    std::vector<bool> written(kLeading, false);
    for (size_t p = 0; p < 3; ++p) {
      const uint32_t n = matrices[p]->view().rows;
      const Expected expected = expected_of(*matrices[p], input.rounded, kRows);
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t o = 0; o < n; ++o) {
          const double wanted = expected.values[r * n + o];
          written[columns[p] + o] = true;
          ASSERT_NEAR(value_of(found[r * kLeading + columns[p] + o]), wanted,
                      std::abs(wanted) / 250.0 + 2e-6 * expected.sizes[r * n + o])
              << "part " << p << ", row " << r << ", column " << o;
        }
      }
    }
    for (size_t i = 0; i < found.size(); ++i) {
      if (written[i % kLeading]) continue;
      ASSERT_TRUE(std::isnan(value_of(found[i]))) << "wrote beyond the results";
    }
  }
}

// How far the rounding of activations takes a product from the truth: what the names of the two ways promise.
TEST_F(MmqTest, RoundingErrorOfBothWays) {
  constexpr uint32_t kN = 256, kK = 2560, kRows = 64;
  const PackedMatrix matrix(Format::kQ8_0, kN, kK, 4);
  double errors[2] = {};
  for (const MmqActivations activations : kBoth) {
    const Input input(kRows, kK, activations, how_);
    const DeviceArray<float> out(size_t{kRows} * kN, "test output");
    const MmqJob job{.x = input.rows.view(),
                     .part = {{matrix.view(), 0}},
                     .parts = 1,
                     .rows = kRows,
                     .leading = kN,
                     .out_float = out.data()};
    const auto found = run_twice<float>(out, [&] { mmq(job, sm_count_, how_); });
    const Expected truth = expected_of(matrix, {input.exact.floats.begin(), input.exact.floats.end()}, kRows);
    errors[static_cast<uint32_t>(activations) - 1] = difference(found, truth.values).relative;
  }
  EXPECT_LT(errors[0], 7e-3);
  EXPECT_LT(errors[1], 6e-5);
  EXPECT_GT(errors[0], 64 * errors[1]);
}

TEST_F(MmqTest, SmallRefusals) {
  const PackedMatrix eight(Format::kQ8_0, 8, 64, 1), four(Format::kQ4_0, 8, 64, 2), floats(Format::kF16, 8, 64, 3);
  const Input input(1, 64, MmqActivations::kInt8, how_);
  const auto out = poisoned<float>(64);
  MmqJob job{.x = input.rows.view(), .part = {{eight.view(), 0}}, .parts = 1, .rows = 1, .leading = 16};
  EXPECT_THROW(mmq(job, sm_count_, how_), std::logic_error);  // no result
  job.out_float = out.data();
  job.parts = 2;
  job.part[1] = {four.view(), 8};
  EXPECT_THROW(mmq(job, sm_count_, how_), std::logic_error);  // two packings
  job.parts = 1;
  EXPECT_THROW(mmq(job, sm_count_, how_, 48), std::logic_error);  // no such tile
  job.part[0] = {floats.view(), 0};
  EXPECT_THROW(mmq(job, sm_count_, how_), std::logic_error);
  job.rows = 0;
  mmq(job, sm_count_, how_);
  synchronise();
  for (const float value : download(out)) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace carat::cuda
