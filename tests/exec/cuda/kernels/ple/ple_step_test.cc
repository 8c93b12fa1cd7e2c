#include "exec/cuda/kernels/ple/ple_step.h"

#include <algorithm>
#include <bit>
#include <string>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/weights/packed_matrix.h"

namespace carat::cuda {

using quant::Format;

namespace {

// The end of a layer: inputs in device memory, and what must come out in double precision.
template <typename Delta>
struct Problem {
  static constexpr float kEps = 1e-6f, kScale = 0.7f;
  uint32_t rows, d, P, leading;
  RandomValues<float> x;
  RandomValues<Delta> delta;
  RandomValues<float> delta_norm, post_norm, next_norm, factors;
  PackedMatrix gate, proj;
  std::vector<double> stream, result;  // [rows, d]

  Problem(Format format, uint32_t row_count, uint32_t columns, uint32_t inner, uint64_t seed)
      : rows(row_count),
        d(columns),
        P(inner),
        leading(3 * inner),
        x(size_t{rows} * d, 10.0f, seed),
        delta(size_t{rows} * d, 3.0f, seed + 1),
        delta_norm(d, 1.0f, seed + 2),
        post_norm(d, 4.0f, seed + 3),
        next_norm(d, 1.0f, seed + 4),
        factors(size_t{rows} * leading, 1.0f, seed + 5),
        gate(format, P, d, seed + 6),
        proj(format, d, P, seed + 7) {
    stream.resize(size_t{rows} * d);
    result.resize(size_t{rows} * d);
    on_host_cores(rows, [&](size_t r) { add_row(r); });
  }

  PleStep<Delta> job(const float* x_in, float* x_out) const {
    PleStep<Delta> job;
    job.residual = {.x = x_in,
                    .delta = delta.device.data(),
                    .delta_norm = delta_norm.device.data(),
                    .scale = kScale,
                    .x_out = x_out,
                    .next_norm = next_norm.device.data(),
                    .eps = kEps,
                    .d = d};
    job.gate = gate.view();
    job.proj = proj.view();
    job.factors = factors.device.data() + P;  // the second of three layers
    job.factors_leading = leading;
    job.post_norm = post_norm.device.data();
    for (const float weight : next_norm.floats) job.bound = std::max(job.bound, std::abs(weight));
    job.bound *= std::sqrt(static_cast<float>(d));
    return job;
  }

 private:
  static double rms_factor(const double* row, size_t count) {
    return 1.0 / std::sqrt(dot_double(row, row, count) / static_cast<double>(count) + double{kEps});
  }
  // row + rms(added) * norm
  static void join(std::vector<double>& row, const std::vector<double>& added, const std::vector<float>& norm) {
    const double factor = rms_factor(added.data(), added.size());
    for (size_t c = 0; c < row.size(); ++c) row[c] += added[c] * factor * double{norm[c]};
  }
  void add_row(size_t r) {
    std::vector<double> v(x.floats.begin() + static_cast<ptrdiff_t>(r * d),
                          x.floats.begin() + static_cast<ptrdiff_t>((r + 1) * d));
    const std::vector<double> f(delta.floats.begin() + static_cast<ptrdiff_t>(r * d),
                                delta.floats.begin() + static_cast<ptrdiff_t>((r + 1) * d));
    join(v, f, delta_norm.floats);
    std::vector<double> inner(P), y(d);
    for (uint32_t p = 0; p < P; ++p) {
      inner[p] = gelu_double(dot_double(gate.row(p), v.data(), d)) * double{factors.floats[r * leading + P + p]};
    }
    for (uint32_t c = 0; c < d; ++c) y[c] = dot_double(proj.row(c), inner.data(), P);
    join(v, y, post_norm.floats);
    for (double& value : v) value *= double{kScale};
    const double factor = rms_factor(v.data(), d);
    for (uint32_t c = 0; c < d; ++c) {
      stream[r * d + c] = v[c];
      result[r * d + c] = v[c] * factor * double{next_norm.floats[c]};
    }
  }
};

struct Widths {
  uint32_t d, P;
};

class PleStepTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (attribute(cudaDevAttrComputeCapabilityMajor) < 9) GTEST_SKIP() << "skipped: no clusters";
  }
  // K-quants round scale * q and the minimum, which may both be larger than the weight they make.
  static double tolerance(Format format) { return format == Format::kQ8_0 || format == Format::kQ4_0 ? 1e-3 : 5e-3; }
  static std::string name(Format format, uint32_t rows, const Widths& widths) {
    return std::string(quant::info(format).name) + " " + std::to_string(rows) + " rows " + std::to_string(widths.d) +
           " x " + std::to_string(widths.P);
  }

  void check_skinny(Format format, uint32_t rows, const Widths& widths) {
    SCOPED_TRACE(name(format, rows, widths));
    const Problem<float> problem(format, rows, widths.d, widths.P, 7 * rows + widths.d);
    const uint32_t steps = steps_of(widths.d), tiles = skinny_tiles(rows);
    const auto fragments = poisoned<uint32_t>(skinny_fragment_words(steps, rows));
    const auto scale = poisoned<float>(rows);
    const auto x_out = poisoned<float>(size_t{rows} * widths.d);
    const auto work = [&] {
      ple_step(problem.job(problem.x.device.data(), x_out.data()), rows, {fragments.data(), scale.data(), tiles}, how_);
    };
    const std::vector<uint32_t> words = run_twice(fragments, work);
    EXPECT_LT(difference(download(x_out), problem.stream).relative, tolerance(format));
    const std::vector<float> scales = download(scale);
    std::vector<float> values(size_t{rows} * widths.d);
    for (uint32_t r = 0; r < rows; ++r) {
      float most = 0.0f;
      for (uint32_t c = 0; c < widths.d; ++c) {
        const size_t at = place(r, c, tiles);
        const float level = __half2float(std::bit_cast<__half>(static_cast<uint16_t>(words[at / 2] >> at % 2 * 16)));
        most = std::max(most, std::abs(level));
        values[size_t{r} * widths.d + c] = level * scales[r];
      }
      EXPECT_LE(most, 32768.0f) << "row " << r;
    }
    EXPECT_LT(difference(values, problem.result).relative, tolerance(format));
  }
  // Where column c of row r lies (skinny_rows.h), counted in fp16 values.
  static size_t place(uint32_t r, uint32_t c, uint32_t tiles) {
    static constexpr uint32_t kOrder[8] = {0, 2, 1, 3, 4, 6, 5, 7};  // its own inverse
    const uint32_t block = c % kStep / 32, chunk = block / 4 * 4 + c % 32 / 8;
    const size_t lane = r % 8 * 4 + block % 4;
    return (((size_t{c / kStep} * 8 + chunk) * tiles + r / 8) * 32 + lane) * 8 + kOrder[c % 8];
  }

  // In place, and with a row of poison after the last one.
  void check_prompt_pass(Format format, uint32_t rows, const Widths& widths) {
    SCOPED_TRACE(name(format, rows, widths));
    const Problem<__nv_bfloat16> problem(format, rows, widths.d, widths.P, 3 * rows + widths.d);
    const size_t count = size_t{rows} * widths.d;
    const auto x = poisoned<float>(count + widths.d);
    const auto out = poisoned<__nv_bfloat16>(count + widths.d);
    const auto work = [&] {
      check(cudaMemcpy(x.data(), problem.x.device.data(), count * sizeof(float), cudaMemcpyDeviceToDevice), "copy");
      settle();
      ple_step(problem.job(x.data(), x.data()), rows, out.data(), how_);
    };
    std::vector<__nv_bfloat16> values = run_twice(out, work);
    std::vector<float> stream = download(x);
    for (uint32_t c = 0; c < widths.d; ++c) {
      ASSERT_TRUE(std::isnan(__bfloat162float(values[count + c])) && std::isnan(stream[count + c]))
          << "beyond the rows";
    }
    values.resize(count);
    stream.resize(count);
    EXPECT_LT(difference(stream, problem.stream).relative, tolerance(format));
    EXPECT_LT(difference(values, problem.result).relative, tolerance(format) + 4e-3);
  }
};

constexpr Format kFormats[] = {Format::kQ8_0, Format::kQ4_0, Format::kQ4_K, Format::kQ5_K, Format::kQ6_K};

TEST_F(PleStepTest, SmallEveryFormat) {
  for (const Format format : kFormats) {
    check_skinny(format, 5, {512, 256});
    check_prompt_pass(format, 5, {256, 256});
  }
}

TEST_F(PleStepTest, EveryWidth) {
  for (const Widths& widths : {Widths{2560, 256}, Widths{1536, 256}, Widths{2560, 128}, Widths{256, 128}}) {
    check_skinny(Format::kQ8_0, 8, widths);
    check_prompt_pass(Format::kQ8_0, 8, widths);
  }
}

TEST_F(PleStepTest, EveryNumberOfRows) {
  for (const uint32_t rows : {1u, 8u, 13u, 24u, 48u, 64u}) check_skinny(Format::kQ8_0, rows, {2560, 256});
  for (const uint32_t rows : {3u, 64u, 96u, 200u}) check_prompt_pass(Format::kQ8_0, rows, {2560, 256});
}

// A NaN must show in the result.
TEST_F(PleStepTest, SmallNanShows) {
  Problem<float> problem(Format::kQ8_0, 8, 512, 256, 5);
  std::vector<float> broken = problem.x.floats;
  broken[3 * 512 + 77] = NAN;
  const auto x = upload(broken);
  const auto fragments = zeros<uint32_t>(skinny_fragment_words(2, 8));
  const auto scale = zeros<float>(8);
  const auto x_out = zeros<float>(size_t{8} * 512);
  ple_step(problem.job(x.data(), x_out.data()), 8, {fragments.data(), scale.data(), 1}, how_);
  synchronise();
  const std::vector<uint32_t> words = download(fragments);
  for (uint32_t r = 0; r < 8; ++r) {
    for (uint32_t c = 0; c < 512; ++c) {
      const size_t at = place(r, c, 1);
      const float level = __half2float(std::bit_cast<__half>(static_cast<uint16_t>(words[at / 2] >> at % 2 * 16)));
      ASSERT_EQ(std::isnan(level), r == 3) << "row " << r << " column " << c;
    }
  }
}

TEST_F(PleStepTest, RefusesWhatItCannotRead) {
  const Problem<float> problem(Format::kQ8_0, 8, 256, 256, 9);
  const auto x_out = zeros<float>(size_t{8} * 256);
  PleStep<float> job = problem.job(problem.x.device.data(), x_out.data());
  job.residual.next_norm = nullptr;
  EXPECT_THROW(ple_step(job, 8, SkinnyRows{}, how_), std::logic_error);
  job = problem.job(problem.x.device.data(), x_out.data());
  job.proj.packing = Packing::kQ4;
  EXPECT_THROW(ple_step(job, 8, SkinnyRows{}, how_), std::logic_error);
}

}  // namespace
}  // namespace carat::cuda
