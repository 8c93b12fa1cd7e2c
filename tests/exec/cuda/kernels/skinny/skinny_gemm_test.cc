#include "exec/cuda/kernels/skinny/skinny_gemm.h"

#include <algorithm>
#include <bit>
#include <string>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/elementwise/residual_problem.h"
#include "exec/cuda/weights/packed_matrix.h"

namespace carat::cuda {

using quant::Format;

namespace {

bool fits(const quant::FormatInfo& format, uint32_t cols) { return cols % format.block == 0; }

// Rows of activations, their operands as skinny_rows.h describes them, and both in device memory.
struct Activations {
  uint32_t rows, cols, steps, tiles;
  std::vector<float> values;  // [rows, cols]
  std::vector<float> scales;
  DeviceArray<float> floats;  // [rows, cols padded to 4]
  uint32_t leading;
  DeviceArray<uint32_t> largest, fragments;
  DeviceArray<float> scale;

  Activations(uint32_t row_count, uint32_t columns, float deviation, uint64_t seed)
      : rows(row_count), cols(columns), steps(steps_of(columns)), tiles(skinny_tiles(row_count)) {
    values = test::Random(seed).normals(size_t{rows} * cols, deviation);
    leading = (cols + 3) / 4 * 4;
    std::vector<float> padded(size_t{rows} * leading, NAN);
    std::vector<uint32_t> most(rows, 0);
    // Rows beyond the true number may hold anything.
    std::vector<__half> halves(skinny_fragment_words(steps, rows) * 2, __float2half(NAN));
    for (uint32_t r = 0; r < rows; ++r) {
      float row_most = 0.0f;
      for (uint32_t c = 0; c < cols; ++c) {
        const float v = values[size_t{r} * cols + c];
        padded[size_t{r} * leading + c] = v;
        row_most = std::max(row_most, std::abs(v));
      }
      most[r] = std::bit_cast<uint32_t>(row_most);
      scales.push_back(row_most == 0.0f ? 1.0f : std::ldexp(1.0f, std::ilogb(row_most) - 14));
      for (uint32_t c = 0; c < steps * kStep; ++c) {
        const float v = c < cols ? values[size_t{r} * cols + c] / scales[r] : 0.0f;
        halves[place(r, c)] = __float2half_rn(v);
      }
    }
    floats = upload(padded);
    largest = upload(most);
    scale = upload(scales);
    std::vector<uint32_t> words(halves.size() / 2);
    std::memcpy(words.data(), halves.data(), words.size() * 4);
    fragments = upload(words);
  }

  // Where column c of row r lies, counted in fp16 values.
  size_t place(uint32_t r, uint32_t c) const {
    static constexpr uint32_t kOrder[8] = {0, 2, 1, 3, 4, 6, 5, 7};  // its own inverse
    const uint32_t block = c % kStep / 32, chunk = block / 4 * 4 + c % 32 / 8;
    const size_t lane = r % 8 * 4 + block % 4;
    return (((size_t{c / kStep} * 8 + chunk) * tiles + r / 8) * 32 + lane) * 8 + kOrder[c % 8];
  }
  SkinnyRows view() const { return {fragments.data(), scale.data(), tiles}; }
};

struct PartShape {
  Format format;
  uint32_t outputs;
};

class SkinnyGemmTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    partial_ = DeviceArray<float>(kPartial, "partial sums");
    poison(partial_);
    counters_ = zeros<uint32_t>(1u << 15);
  }
  SkinnyScratch scratch() const {
    return {partial_.data(), kPartial, counters_.data(), static_cast<uint32_t>(counters_.size())};
  }
  void run(const SkinnyJob& job, uint32_t sm_count) const {
    skinny_gemm(job, scratch(), sm_count, shared_memory_, how_);
  }

  // The exact product and how far a result may be off: six deviations of what rounding both factors to fp16 does, and
  // the fp32 sum of the tensor cores.
  struct Exact {
    std::vector<double> values, allowance;  // [rows, outputs]
  };
  static Exact exact_product(const PackedMatrix& w, const Activations& x) {
    const uint32_t outputs = w.view().rows;
    Exact exact{std::vector<double>(size_t{x.rows} * outputs), std::vector<double>(size_t{x.rows} * outputs)};
    // K-quants round scale * q and the minimum, which may both be larger than the weight they make.
    const double deviation = is_k(w.view().packing) ? 1.5e-3 : 3e-4;
    on_host_cores(outputs, [&](size_t o) {
      for (uint32_t r = 0; r < x.rows; ++r) {
        double sum = 0.0, squares = 0.0, magnitudes = 0.0;
        for (uint32_t c = 0; c < x.cols; ++c) {
          const double product = double{w.row(o)[c]} * double{x.values[size_t{r} * x.cols + c]};
          sum += product;
          squares += product * product;
          magnitudes += std::abs(product);
        }
        exact.values[r * size_t{outputs} + o] = sum;
        exact.allowance[r * size_t{outputs} + o] = 6.0 * deviation * std::sqrt(squares) + 2e-6 * magnitudes + 1e-9;
      }
    });
    return exact;
  }
  static bool is_k(Packing packing) {
    return packing == Packing::kQ4K || packing == Packing::kQ5K || packing == Packing::kQ6K;
  }

  void expect_near(const std::vector<float>& out, uint32_t leading, uint32_t offset, const Exact& exact, uint32_t rows,
                   uint32_t outputs, const std::string& what) {
    uint32_t shown = 0;
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t o = 0; o < outputs; ++o) {
        const double found = out[size_t{r} * leading + offset + o], wanted = exact.values[size_t{r} * outputs + o];
        const double allowed = exact.allowance[size_t{r} * outputs + o];
        if (std::abs(found - wanted) <= allowed) continue;
        ADD_FAILURE() << what << ": row " << r << " output " << o << " is " << found << " and not " << wanted << " +- "
                      << allowed;
        if (++shown == 3) return;
      }
    }
  }

  void check(const std::vector<PartShape>& parts, uint32_t cols, const std::vector<uint32_t>& row_counts,
             const std::vector<uint32_t>& sm_counts) {
    std::vector<PackedMatrix> matrices;
    uint32_t leading = 3;  // columns that must stay untouched
    for (const PartShape& part : parts) {
      matrices.emplace_back(part.format, part.outputs, cols, cols + matrices.size());
      leading += part.outputs;
    }
    for (const uint32_t rows : row_counts) {
      const Activations x(rows, cols, 3.0f, rows + cols);
      std::vector<Exact> exact;
      for (const PackedMatrix& matrix : matrices) exact.push_back(exact_product(matrix, x));
      const auto out = poisoned<float>(size_t{rows} * leading);
      SkinnyJob job;
      job.rows = rows;
      job.parts = static_cast<uint32_t>(matrices.size());
      uint32_t offset = 0;
      for (uint32_t p = 0; p < job.parts; ++p) {
        job.part[p] = {matrices[p].view(), out.data() + offset, leading};
        offset += matrices[p].view().rows;
      }
      for (const uint32_t sm_count : sm_counts) {
        for (const bool as_floats : {false, true}) {
          job.input = as_floats ? SkinnyRows{} : x.view();
          job.floats = x.floats.data();
          job.floats_leading = x.leading;
          job.floats_largest = x.largest.data();
          const std::string what = std::to_string(rows) + " rows, " + std::to_string(cols) + " columns, " +
                                   std::to_string(sm_count) + " SMs" + (as_floats ? ", floats" : "");
          const auto found = run_twice<float>(out, [&] { run(job, sm_count); });
          offset = 0;
          for (size_t p = 0; p < matrices.size(); ++p) {
            const uint32_t outputs = matrices[p].view().rows;
            expect_near(found, leading, offset, exact[p], rows, outputs, what);
            offset += outputs;
          }
          for (uint32_t r = 0; r < rows; ++r) {
            for (uint32_t c = offset; c < leading; ++c) {
              EXPECT_TRUE(std::isnan(found[size_t{r} * leading + c])) << what << ": wrote beyond the results";
            }
          }
          if (HasFailure()) return;
        }
      }
    }
  }

  static constexpr uint64_t kPartial = uint64_t{4} << 20;
  DeviceArray<float> partial_;
  DeviceArray<uint32_t> counters_;
};

class SkinnyGemmFormatTest : public SkinnyGemmTest, public testing::WithParamInterface<quant::FormatInfo> {};

INSTANTIATE_TEST_SUITE_P(Packings, SkinnyGemmFormatTest, testing::ValuesIn(one_format_per_packing()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST_P(SkinnyGemmFormatTest, SmallShapes) {
  for (const uint32_t cols : {32u, 64u, 256u, 704u}) {
    if (!fits(GetParam(), cols)) continue;
    for (const uint32_t outputs : {1u, 7u, 33u}) {
      check({{GetParam().format, outputs}}, cols, {1, 8, 9, 33}, {1, 132});
      if (HasFailure()) return;
    }
  }
}

// Every number of tiles with full and ragged rows, weight rows inside one warp and spread over several, columns in one
// block and split over many.
TEST_P(SkinnyGemmFormatTest, EveryCut) {
  for (const uint32_t cols : {704u, 1280u, 3072u}) {
    if (!fits(GetParam(), cols)) continue;
    check({{GetParam().format, 211}}, cols, {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64}, {1, 4, 132});
    if (HasFailure()) return;
  }
}

TEST_P(SkinnyGemmFormatTest, RealWidths) {
  check({{GetParam().format, 4000}}, 2560, {8, 64}, {132});
  check({{GetParam().format, 640}}, 10240, {8, 16, 32, 64}, {132});
}

TEST_P(SkinnyGemmFormatTest, NearTheExactProduct) {
  constexpr uint32_t kRows = 24, kCols = 2560, kOutputs = 300;
  const PackedMatrix matrix(GetParam().format, kOutputs, kCols, 5);
  const Activations x(kRows, kCols, 2.0f, 6);
  const auto out = poisoned<float>(size_t{kRows} * kOutputs);
  SkinnyJob job;
  job.rows = kRows;
  job.part[0] = {matrix.view(), out.data(), kOutputs};
  job.input = x.view();
  const auto found = run_twice<float>(out, [&] { run(job, sm_count_); });
  // Rounding to fp16 costs each factor 0.02% of its size; rounding to bf16, as in prompt passes, eight times as much.
  EXPECT_LT(difference(found, exact_product(matrix, x).values).relative, is_k(matrix.view().packing) ? 1e-3 : 4e-4);
}

TEST_P(SkinnyGemmFormatTest, SmallGeglu) {
  constexpr uint32_t kCols = 512;
  for (const uint32_t F : {20u, 41u, 704u}) {
    const PackedMatrix gate(GetParam().format, F, kCols, F), up(GetParam().format, F, kCols, F + 1);
    for (const uint32_t rows : {1u, 3u, 8u, 17u, 64u}) {
      const Activations x(rows, kCols, 1.0f, rows);
      const Exact g = exact_product(gate, x), u = exact_product(up, x);
      const uint32_t leading = (F + 3) / 4 * 4;
      for (const uint32_t sm_count : {1u, 132u}) {
        const auto out = poisoned<float>(size_t{rows} * leading);
        const auto largest = zeros<uint32_t>(rows);
        SkinnyJob job;
        job.rows = rows;
        job.parts = 2;
        job.part[0] = {gate.view(), out.data(), leading};
        job.part[1] = {up.view(), out.data(), leading};
        job.input = x.view();
        job.output = GemvOutput::kGeglu;
        job.largest = largest.data();
        run(job, sm_count);
        synchronise();
        const auto found = download(out);
        const auto most = download(largest);
        Exact expected;
        for (size_t i = 0; i < g.values.size(); ++i) {
          expected.values.push_back(gelu_double(g.values[i]) * u.values[i]);
          // |gelu'| is below 1.13.
          expected.allowance.push_back(1.13 * g.allowance[i] * (std::abs(u.values[i]) + u.allowance[i]) +
                                       (std::abs(g.values[i]) + g.allowance[i]) * u.allowance[i] + 1e-5);
        }
        expect_near(found, leading, 0, expected, rows, F, "geglu");
        for (uint32_t r = 0; r < rows; ++r) {
          float expected_most = 0.0f;
          for (uint32_t o = 0; o < F; ++o) expected_most = std::max(expected_most, std::abs(found[r * leading + o]));
          EXPECT_EQ(std::bit_cast<float>(most[r]), expected_most) << "row " << r;
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(SkinnyGemmTest, SmallGeluTimesAndSoftcap) {
  constexpr uint32_t kCols = 256, kOutputs = 70, kLeading = 95, kRows = 19;
  constexpr float kCap = 30.0f;
  const PackedMatrix matrix(Format::kQ8_0, kOutputs, kCols, 8);
  const Activations x(kRows, kCols, 1.0f, 9);
  const Exact exact = exact_product(matrix, x);
  const RandomValues<float> factors(size_t{kRows} * kLeading, 1.0f, 10);
  const auto out = poisoned<float>(size_t{kRows} * kOutputs);
  const auto largest = zeros<uint32_t>(kRows), non_finite = zeros<uint32_t>(kRows);
  SkinnyJob job;
  job.rows = kRows;
  job.part[0] = {matrix.view(), out.data(), kOutputs};
  job.input = x.view();
  job.output = GemvOutput::kGeluTimes;
  job.largest = largest.data();
  job.factors = factors.device.data();
  job.factors_leading = kLeading;
  Exact times = exact, capped = exact;
  for (size_t i = 0; i < exact.values.size(); ++i) {
    const double factor = factors.floats[i / kOutputs * kLeading + i % kOutputs];
    times.values[i] = gelu_double(exact.values[i]) * factor;
    times.allowance[i] = 1.13 * std::abs(factor) * exact.allowance[i] + 1e-5;
    capped.values[i] = double{kCap} * std::tanh(exact.values[i] / double{kCap});
  }
  run(job, sm_count_);
  synchronise();
  expect_near(download(out), kOutputs, 0, times, kRows, kOutputs, "gelu times factor");
  job.output = GemvOutput::kSoftcap;
  job.largest = nullptr;
  job.cap = kCap;
  job.non_finite = non_finite.data();
  run(job, sm_count_);
  synchronise();
  expect_near(download(out), kOutputs, 0, capped, kRows, kOutputs, "soft-cap");
  EXPECT_EQ(download(non_finite), std::vector<uint32_t>(kRows, 0u));
}

// A NaN or infinity among the activations must not be rounded away, whichever way they come in, and shows in its row.
TEST_F(SkinnyGemmTest, SmallBrokenActivationsAreNoticed) {
  constexpr uint32_t kCols = 256, kOutputs = 40, kRows = 10;
  const PackedMatrix matrix(Format::kQ4_0, kOutputs, kCols, 1);
  const Activations x(kRows, kCols, 1.0f, 2);
  for (const float broken : {NAN, INFINITY}) {
    std::vector<float> values(size_t{kRows} * kCols, 1.0f);
    values[3 * kCols + 77] = broken;
    const auto floats = upload(values);
    std::vector<uint32_t> bits(kRows, std::bit_cast<uint32_t>(1.0f)), wanted(kRows, 0u);
    bits[3] = std::bit_cast<uint32_t>(broken);
    wanted[3] = 1;
    const auto largest = upload(bits);
    const auto out = poisoned<float>(size_t{kRows} * kOutputs);
    const auto non_finite = zeros<uint32_t>(kRows);
    SkinnyJob job;
    job.rows = kRows;
    job.part[0] = {matrix.view(), out.data(), kOutputs};
    job.floats = floats.data();
    job.floats_leading = kCols;
    job.floats_largest = largest.data();
    job.output = GemvOutput::kSoftcap;
    job.non_finite = non_finite.data();
    run(job, sm_count_);
    synchronise();
    EXPECT_EQ(download(non_finite), wanted);

    ResidualNorm residual;
    residual.x = floats.data();
    residual.d = kCols;
    skinny_residual_norm(residual, kRows, x.view(), nullptr, how_);
    const auto again = zeros<uint32_t>(kRows);
    job.input = x.view();
    job.non_finite = again.data();
    run(job, sm_count_);
    synchronise();
    EXPECT_EQ(download(again), wanted);
  }
}

TEST_F(SkinnyGemmTest, SmallPartsOfDifferentPackings) {
  check({{Format::kQ8_0, 64}, {Format::kQ8_0, 16}, {Format::kQ8_0, 16}}, 512, {5, 20}, {1, 132});
  check({{Format::kQ4_K, 100}, {Format::kQ6_K, 30}, {Format::kQ4_0, 7}}, 512, {5, 20}, {1, 132});
  check({{Format::kBF16, 40}, {Format::kQ5_K, 40}, {Format::kF32, 1}}, 512, {5, 64}, {1, 132});
}

TEST_F(SkinnyGemmTest, QkvOfRealWidths) {
  check({{Format::kQ8_0, 2048}, {Format::kQ8_0, 512}, {Format::kQ8_0, 512}}, 2560, {8, 32}, {132});
  check({{Format::kQ4_K, 2048}, {Format::kQ4_K, 512}, {Format::kQ6_K, 512}}, 2560, {16}, {132});
}

// What does not fit the room for partial sums runs as halves of the rows.
TEST_F(SkinnyGemmTest, ManyOutputsOfManyRows) { check({{Format::kQ8_0, 36000}}, 2560, {64, 41}, {132}); }

TEST_F(SkinnyGemmTest, SmallResidualNorms) {
  for (const ResidualKind kind : {ResidualKind::kPlain, ResidualKind::kDelta}) {
    for (const uint32_t d : {64u, 1536u, 2560u, 5376u}) {
      for (const uint32_t rows : {5u, 17u, 64u}) {
        const ResidualProblem<float> residual(rows, d, kind, true, d + rows);
        const Activations layout(rows, d, 1.0f, 1);
        const auto x_out = poisoned<float>(size_t{rows} * d);
        const auto fragments = poisoned<uint32_t>(skinny_fragment_words(steps_of(d), rows));
        const auto scale = poisoned<float>(rows);
        const auto clear = poisoned<uint32_t>(rows);
        skinny_residual_norm(residual.job(x_out.data()), rows, {fragments.data(), scale.data(), layout.tiles},
                             clear.data(), how_);
        synchronise();
        const auto words = download(fragments);
        const auto scales = download(scale);
        std::vector<__half> halves(words.size() * 2);
        std::memcpy(static_cast<void*>(halves.data()), words.data(), words.size() * 4);
        for (uint32_t r = 0; r < rows; ++r) {
          double most = 0.0;
          for (uint32_t c = 0; c < d; ++c) most = std::max(most, std::abs(residual.result()[size_t{r} * d + c]));
          EXPECT_LE(most / double{scales[r]}, 32768.01);
          EXPECT_GE(most / double{scales[r]}, 16383.99);
          for (uint32_t c = 0; c < steps_of(d) * kStep; ++c) {
            const double wanted = c < d ? residual.result()[size_t{r} * d + c] : 0.0;
            const double found = double{__half2float(halves[layout.place(r, c)])} * double{scales[r]};
            ASSERT_NEAR(found, wanted, 5e-4 * std::abs(wanted) + 3e-6) << "row " << r << " column " << c;
          }
        }
        EXPECT_EQ(download(clear), std::vector<uint32_t>(rows, 0));
        EXPECT_LT(difference(download(x_out), residual.stream()).relative, 1e-6);
      }
    }
  }
}

TEST_F(SkinnyGemmTest, SmallGegluOfDifferentFormats) {
  constexpr uint32_t kRows = 11, kF = 300;
  const RandomValues<float> gate_up(size_t{kRows} * 2 * kF, 2.0f, 4);
  const auto out = poisoned<float>(size_t{kRows} * kF);
  const auto largest = zeros<uint32_t>(kRows);
  skinny_geglu(gate_up.device.data(), kRows, kF, out.data(), kF, largest.data(), how_);
  synchronise();
  const auto found = download(out);
  const auto most = download(largest);
  for (uint32_t r = 0; r < kRows; ++r) {
    float row_most = 0.0f;
    for (uint32_t c = 0; c < kF; ++c) {
      const size_t gate = size_t{r} * 2 * kF + c;
      const double wanted = gelu_double(gate_up.floats[gate]) * double{gate_up.floats[gate + kF]};
      EXPECT_NEAR(found[size_t{r} * kF + c], wanted, 1e-5 * std::abs(wanted) + 1e-5);
      row_most = std::max(row_most, std::abs(found[size_t{r} * kF + c]));
    }
    EXPECT_EQ(std::bit_cast<float>(most[r]), row_most);
  }
}

}  // namespace
}  // namespace carat::cuda
