#include "exec/cuda/kernels/gemv/gemv.h"

#include <algorithm>
#include <bit>
#include <string>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/elementwise/residual_problem.h"
#include "exec/cuda/kernels/gemv/host_activations.h"
#include "exec/cuda/weights/packed_matrix.h"

namespace carat::cuda {

using quant::Format;

namespace {

// Matrix-vector kernels come for 1, 2, 4 and 8 rows; buffers hold as many rows as the kernel.
uint32_t padded_rows(uint32_t rows) { return std::bit_ceil(rows); }

bool fits(const quant::FormatInfo& format, uint32_t cols) { return cols % format.block == 0; }

struct PartShape {
  Format format;
  uint32_t outputs;
};

class GemvTest : public GpuTest {
 protected:
  using Matrices = std::vector<PackedMatrix>;

  static Matrices make_matrices(uint32_t cols, const std::vector<PartShape>& parts, uint64_t seed) {
    Matrices matrices;
    for (const PartShape& part : parts) matrices.emplace_back(part.format, part.outputs, cols, seed++);
    return matrices;
  }

  // A job over all the matrices; results go to one [rows, leading] array, part after part, with a few columns that must
  // stay untouched at the end.
  struct Problem {
    const Matrices* matrices = nullptr;
    uint32_t leading = 3;
    DeviceArray<float> out;
    GemvJob job;
  };

  static Problem make_problem(uint32_t rows, const Matrices& matrices) {
    Problem problem;
    problem.matrices = &matrices;
    problem.job.rows = rows;
    problem.job.parts = static_cast<uint32_t>(matrices.size());
    for (const PackedMatrix& matrix : matrices) problem.leading += matrix.view().rows;
    problem.out = poisoned<float>(size_t{rows} * problem.leading);
    uint32_t offset = 0;
    for (size_t p = 0; p < matrices.size(); ++p) {
      problem.job.part[p] = {matrices[p].view(), problem.out.data() + offset, problem.leading};
      offset += matrices[p].view().rows;
    }
    return problem;
  }

  static HostQuantised random_input(uint32_t cols, uint64_t seed) {
    return quantise_host(test::Random(seed).normals(size_t{kGemvRows} * cols, 2.0f), kGemvRows, cols);
  }

  static Expected expected_of(const PackedMatrix& matrix, const HostQuantised& x) {
    return product_reference(matrix.values(), matrix.view().rows, x, is_float_packing(matrix.view().packing));
  }
  static std::vector<Expected> expected_of(const Matrices& matrices, const HostQuantised& x) {
    std::vector<Expected> expected;
    for (const PackedMatrix& matrix : matrices) expected.push_back(expected_of(matrix, x));
    return expected;
  }
  // Of the first rows alone: the rows that only pad the kernel's do not count.
  static Expected first_rows(const Expected& expected, uint32_t rows, uint32_t outputs) {
    const auto count = static_cast<ptrdiff_t>(size_t{rows} * outputs);
    return {{expected.values.begin(), expected.values.begin() + count},
            {expected.allowance.begin(), expected.allowance.begin() + count}};
  }

  // Runs the job for several GPU sizes (they decide how the work is cut) and compares what is stored.
  void check_stored(const Problem& problem, const std::vector<Expected>& expected,
                    const std::vector<uint32_t>& sm_counts) {
    const Matrices& matrices = *problem.matrices;
    const uint32_t rows = problem.job.rows;
    for (const uint32_t sm_count : sm_counts) {
      const std::string what = std::to_string(rows) + " rows, " + std::to_string(matrices[0].view().cols) +
                               " columns, " + std::to_string(sm_count) + " SMs";
      const auto out = run_twice<float>(problem.out, [&] { gemv(problem.job, sm_count, how_); });
      uint32_t offset = 0;
      for (size_t p = 0; p < matrices.size(); ++p) {
        const uint32_t outputs = matrices[p].view().rows;
        const std::vector<float> part(out.begin() + offset, out.end());
        expect_within(part, problem.leading, first_rows(expected[p], rows, outputs), outputs, what.c_str());
        offset += outputs;
      }
      for (size_t r = 0; r < rows; ++r) {
        for (uint32_t c = offset; c < problem.leading; ++c) {
          EXPECT_TRUE(std::isnan(out[r * problem.leading + c])) << what << ": wrote beyond the results";
        }
      }
      if (HasFailure()) return;
    }
  }

  void check_quantised_input(const std::vector<uint32_t>& rows, uint32_t cols, const std::vector<PartShape>& parts,
                             const std::vector<uint32_t>& sm_counts) {
    const Matrices matrices = make_matrices(cols, parts, cols);
    const HostQuantised input = random_input(cols, 77 + cols);
    const DeviceQuantised device = upload_quantised(input);
    const std::vector<Expected> expected = expected_of(matrices, input);
    const bool floats = std::ranges::any_of(
        matrices, [](const PackedMatrix& matrix) { return is_float_packing(matrix.view().packing); });
    for (const uint32_t count : rows) {
      if (padded_rows(count) > gemv_max_rows(cols, floats, shared_memory_)) continue;  // a small card
      Problem problem = make_problem(count, matrices);
      problem.job.quantised = device.view(true);
      check_stored(problem, expected, sm_counts);
      if (HasFailure()) return;
    }
  }
};

class GemvFormatTest : public GemvTest, public testing::WithParamInterface<quant::FormatInfo> {};

INSTANTIATE_TEST_SUITE_P(Packings, GemvFormatTest, testing::ValuesIn(one_format_per_packing()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST_P(GemvFormatTest, SmallShapes) {
  for (const uint32_t cols : {32u, 64u, 256u, 704u}) {
    if (!fits(GetParam(), cols)) continue;
    for (const uint32_t outputs : {1u, 7u, 33u}) {
      check_quantised_input({1, 2, 3, 8}, cols, {{GetParam().format, outputs}}, {1, 132});
      if (HasFailure()) return;
    }
  }
}

// Every way the work can be cut: rows 1 to 8, weight rows that one warp reads and weight rows spread over several,
// blocks with many of them and blocks with one.
TEST_P(GemvFormatTest, EveryCut) {
  for (const uint32_t cols : {256u, 704u, 2560u, 4096u}) {
    if (!fits(GetParam(), cols)) continue;
    for (const uint32_t outputs : {100u, 1023u}) {
      check_quantised_input({1, 2, 3, 4, 5, 6, 7, 8}, cols, {{GetParam().format, outputs}}, {1, 4, 16, 132});
      if (HasFailure()) return;
    }
  }
}

TEST_P(GemvFormatTest, RealWidths) {
  check_quantised_input({1, 4}, 2560, {{GetParam().format, 10240}}, {132});
  check_quantised_input({1, 2}, 10240, {{GetParam().format, 2560}}, {132});
}

// The results are near the exact product, not only near the product with rounded activations.
TEST_P(GemvFormatTest, NearTheExactProduct) {
  constexpr uint32_t kRows = kGemvRows, kCols = 2560, kOutputs = 300;
  const Matrices matrices = make_matrices(kCols, {{GetParam().format, kOutputs}}, 5);
  Problem problem = make_problem(kRows, matrices);
  const HostQuantised input = random_input(kCols, 6);
  const DeviceQuantised device = upload_quantised(input);
  problem.job.quantised = device.view(true);
  const auto out = run_twice<float>(problem.out, [&] { gemv(problem.job, sm_count_, how_); });
  std::vector<float> results;
  for (size_t r = 0; r < kRows; ++r) {
    const auto row = out.begin() + static_cast<ptrdiff_t>(r * problem.leading);
    results.insert(results.end(), row, row + kOutputs);
  }
  const Difference off = difference(results, exact_product(matrices[0].values(), kOutputs, input));
  // Rounding of normal values to 1/16319 of the largest of 16 costs 0.004% of their size.
  EXPECT_LT(off.relative, is_float_packing(matrices[0].view().packing) ? 1e-6 : 1e-4);
}

TEST_P(GemvFormatTest, SmallFloatInput) {
  for (const uint32_t rows : {1u, 2u, 5u}) {
    for (const uint32_t cols : {64u, 256u, 1280u}) {
      if (!fits(GetParam(), cols)) continue;
      const Matrices matrices = make_matrices(cols, {{GetParam().format, 70}}, rows);
      const std::vector<float> values = test::Random(rows + cols).normals(size_t{padded_rows(rows)} * cols, 3.0f);
      const auto device = upload(values);
      Problem problem = make_problem(rows, matrices);
      problem.job.input = GemvInput::kFloats;
      problem.job.floats = device.data();
      check_stored(problem, expected_of(matrices, quantise_host(values, padded_rows(rows), cols)), {1, 132});
    }
  }
}

TEST_F(GemvTest, SmallPartsOfDifferentPackings) {
  const std::vector<std::vector<PartShape>> groups = {
      {{Format::kQ8_0, 64}, {Format::kQ8_0, 16}, {Format::kQ8_0, 16}},
      {{Format::kQ4_K, 100}, {Format::kQ6_K, 30}, {Format::kQ4_0, 7}},
      {{Format::kQ4_0, 33}, {Format::kF16, 5}},
      {{Format::kBF16, 40}, {Format::kQ5_K, 40}, {Format::kF32, 1}},
  };
  for (const auto& parts : groups) check_quantised_input({1, 2, 6}, 512, parts, {1, 16, 132});
}

TEST_F(GemvTest, QkvOfRealWidths) {
  check_quantised_input({1, 3, 8}, 2560, {{Format::kQ4_K, 2048}, {Format::kQ4_K, 512}, {Format::kQ6_K, 512}},
                        {16, 132});
  check_quantised_input({1, 3, 8}, 3840, {{Format::kQ4_0, 8192}, {Format::kQ4_0, 512}}, {132});
}

// --- what happens to the results -------------------------------------------------------------------------------------

TEST_P(GemvFormatTest, SmallGeglu) {
  constexpr uint32_t kCols = 512;
  const HostQuantised input = random_input(kCols, 8);
  const DeviceQuantised device = upload_quantised(input);
  for (const uint32_t F :
       {20u, 40u, 160u, 704u}) {  // 20: the last run of 16 is padded; 40: the last block; 704: the last step
    const Matrices matrices = make_matrices(kCols, {{GetParam().format, F}, {GetParam().format, F}}, F);
    const Expected expected = geglu_reference(expected_of(matrices[0], input), expected_of(matrices[1], input));
    for (const uint32_t rows : {1u, 2u, 3u, 8u}) {
      for (const uint32_t sm_count : {1u, 132u}) {
        const bool with_values = sm_count == 1;
        const DeviceQuantised acts = unwritten_quantised(padded_rows(rows), F);
        Problem problem = make_problem(rows, matrices);
        problem.job.quantised = device.view(true);
        problem.job.output = GemvOutput::kGeglu;
        problem.job.geglu = acts.view(with_values);
        problem.job.geglu_steps = steps_of(F);
        gemv(problem.job, sm_count, how_);
        synchronise();
        expect_quantised(download_quantised(acts, with_values), first_rows(expected, rows, F), with_values, "geglu");
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(GemvTest, GegluOfRealWidths) {
  for (const auto& [d, F] : {std::pair{2560u, 10240u}, std::pair{2816u, 2112u}}) {
    const Matrices matrices = make_matrices(d, {{Format::kQ4_0, F}, {Format::kQ4_0, F}}, F);
    const HostQuantised input = random_input(d, F);
    const DeviceQuantised device = upload_quantised(input), acts = unwritten_quantised(kGemvRows, F);
    Problem problem = make_problem(kGemvRows, matrices);
    problem.job.quantised = device.view(false);
    problem.job.output = GemvOutput::kGeglu;
    problem.job.geglu = acts.view(true);
    problem.job.geglu_steps = steps_of(F);
    gemv(problem.job, sm_count_, how_);
    synchronise();
    expect_quantised(download_quantised(acts, true),
                     geglu_reference(expected_of(matrices[0], input), expected_of(matrices[1], input)), true, "geglu");
  }
}

TEST_P(GemvFormatTest, SmallGeluTimes) {
  constexpr uint32_t kCols = 256, kOutputs = 70, kLeading = 95;
  const Matrices matrices = make_matrices(kCols, {{GetParam().format, kOutputs}}, 8);
  const HostQuantised input = random_input(kCols, 9);
  const DeviceQuantised device = upload_quantised(input);
  const RandomValues<float> factors(size_t{kGemvRows} * kLeading, 1.0f, 10);
  const Expected gate = expected_of(matrices[0], input);
  Expected factor{std::vector<double>(gate.values.size()), std::vector<double>(gate.values.size(), 0.0)};
  for (size_t i = 0; i < gate.values.size(); ++i) {
    factor.values[i] = factors.floats[i / kOutputs * kLeading + i % kOutputs];
  }
  const Expected expected = geglu_reference(gate, factor);
  for (const uint32_t rows : {1u, 3u}) {
    Problem problem = make_problem(rows, matrices);
    problem.job.quantised = device.view(true);
    problem.job.output = GemvOutput::kGeluTimes;
    problem.job.factors = factors.device.data();
    problem.job.factors_leading = kLeading;
    check_stored(problem, {expected}, {1, 132});
  }
}

TEST_P(GemvFormatTest, SmallSoftcap) {
  constexpr uint32_t kCols = 256, kOutputs = 300;
  const Matrices matrices = make_matrices(kCols, {{GetParam().format, kOutputs}}, 21);
  const HostQuantised input = random_input(kCols, 22);
  const DeviceQuantised device = upload_quantised(input);
  for (const float cap : {30.0f, 0.0f}) {
    Expected expected = expected_of(matrices[0], input);
    for (size_t i = 0; cap > 0.0f && i < expected.values.size(); ++i) {
      expected.values[i] = double{cap} * std::tanh(expected.values[i] / double{cap});
      expected.allowance[i] += 1e-5;
    }
    const auto non_finite = zeros<uint32_t>(2);
    Problem problem = make_problem(2, matrices);
    problem.job.quantised = device.view(true);
    problem.job.output = GemvOutput::kSoftcap;
    problem.job.cap = cap;
    problem.job.non_finite = non_finite.data();
    check_stored(problem, {expected}, {132});
    EXPECT_EQ(download(non_finite), std::vector<uint32_t>(2, 0u));
  }
}

// A value that is not a number must not vanish in the rounding to integers: it is how a broken model shows, and in
// which row.
TEST_P(GemvFormatTest, SmallNonFiniteInputIsReported) {
  constexpr uint32_t kCols = 256, kOutputs = 5;
  const Matrices matrices = make_matrices(kCols, {{GetParam().format, kOutputs}}, 31);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const size_t where : {size_t{0}, size_t{37}, size_t{255}}) {
      Problem problem = make_problem(2, matrices);
      std::vector<float> values = test::Random(32).normals(2 * kCols);
      values[kCols + where] = bad;
      const auto device = upload(values);
      const auto non_finite = zeros<uint32_t>(2);
      problem.job.input = GemvInput::kFloats;
      problem.job.floats = device.data();
      problem.job.output = GemvOutput::kSoftcap;
      problem.job.cap = 30.0f;
      problem.job.non_finite = non_finite.data();
      gemv(problem.job, sm_count_, how_);
      synchronise();
      EXPECT_EQ(download(non_finite), (std::vector<uint32_t>{0, 1})) << bad << " in column " << where;
    }
  }
}

// --- quantising on its own -------------------------------------------------------------------------------------------

class QuantiseTest : public GpuTest {};

TEST_F(QuantiseTest, SmallFloatsBitForBit) {
  for (const uint32_t cols : {32u, 64u, 704u, 2560u}) {
    constexpr uint32_t kRows = 3;
    const uint32_t leading = cols + 4;
    test::Random random(cols);
    std::vector<float> strided = random.normals(size_t{kRows} * leading, 5.0f), values;
    std::fill_n(strided.begin(), 16, 0.0f);  // a run of zeros
    for (size_t r = 0; r < kRows; ++r) {
      const auto row = strided.begin() + static_cast<ptrdiff_t>(r * leading);
      values.insert(values.end(), row, row + cols);
    }
    const auto device = upload(strided);
    for (const bool with_values : {true, false}) {
      const DeviceQuantised out = unwritten_quantised(kRows, cols);
      quantise_floats(device.data(), kRows, cols, leading, out.view(with_values), how_);
      synchronise();
      const HostQuantised found = download_quantised(out, with_values), expected = quantise_host(values, kRows, cols);
      EXPECT_EQ(found.q, expected.q) << cols << " columns";
      EXPECT_EQ(found.scales, expected.scales) << cols << " columns";
      if (with_values) {
        EXPECT_EQ(found.values, expected.values) << cols << " columns";
      }
    }
  }
}

TEST_F(QuantiseTest, SmallResidualNorm) {
  for (const ResidualKind kind : {ResidualKind::kPlain, ResidualKind::kDelta, ResidualKind::kExperts}) {
    for (const uint32_t d : {64u, 1536u, 5376u}) {
      constexpr uint32_t kRows = 5;
      const ResidualProblem<float> residual(kRows, d, kind, true, d);
      const auto x_out = poisoned<float>(size_t{kRows} * d);
      const DeviceQuantised out = unwritten_quantised(kRows, d);
      quantise_residual_norm(residual.job(x_out.data()), kRows, out.view(true), how_);
      synchronise();
      Expected expected{residual.result(), {}};
      for (const double value : residual.result()) expected.allowance.push_back(2e-6 * std::abs(value) + 3e-6);
      expect_quantised(download_quantised(out, true), expected, true, "residual norm");
      EXPECT_LT(difference(download(x_out), residual.stream()).relative, 1e-6);
    }
  }
}

TEST_F(QuantiseTest, SmallGeglu) {
  for (const uint32_t F : {32u, 704u, 2112u}) {
    constexpr uint32_t kRows = 3;
    const RandomValues<float> gate_up(size_t{kRows} * 2 * F, 2.0f, F);
    Expected expected;
    for (size_t i = 0; i < size_t{kRows} * F; ++i) {
      const size_t gate = i / F * 2 * F + i % F;
      expected.values.push_back(gelu_double(gate_up.floats[gate]) * double{gate_up.floats[gate + F]});
      expected.allowance.push_back(1e-6 * std::abs(expected.values.back()) + 4e-6);
    }
    for (const bool with_values : {true, false}) {
      const DeviceQuantised out = unwritten_quantised(kRows, F);
      quantise_geglu(gate_up.device.data(), kRows, F, out.view(with_values), how_);
      synchronise();
      expect_quantised(download_quantised(out, with_values), expected, with_values, "geglu");
    }
  }
}

TEST_F(QuantiseTest, SmallXOutMayBeLeftOut) {
  const ResidualProblem<float> residual(2, 256, ResidualKind::kDelta, false, 3);
  const DeviceQuantised out = unwritten_quantised(2, 256);
  quantise_residual_norm(residual.job(nullptr), 2, out.view(false), how_);
  synchronise();
  Expected expected{residual.result(), std::vector<double>(residual.result().size(), 1e-4)};
  expect_quantised(download_quantised(out, false), expected, false, "stream");
}

TEST(GemvRows, ShrinkWithTheWidth) {
  EXPECT_EQ(gemv_max_rows(2560, false, 227 * 1024), 8u);
  EXPECT_LT(gemv_max_rows(21504, true, 99 * 1024), 8u);
  EXPECT_GE(gemv_max_rows(21504, true, 99 * 1024), 1u);
}

}  // namespace
}  // namespace carat::cuda
