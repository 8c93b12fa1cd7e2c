#include "exec/cuda/kernels/elementwise/norm.h"

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/elementwise/residual_problem.h"

namespace carat::cuda {
namespace {

constexpr double kBfloatStep = 1.0 / 128.0;  // relative distance of neighbouring bf16 values, at most

class NormTest : public GpuTest {
 protected:
  void check_residual_norm(uint32_t rows, uint32_t d, ResidualKind kind, bool with_norm) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << d << ", kind " << static_cast<int>(kind) << ", norm "
                                    << with_norm);
    const ResidualProblem<__nv_bfloat16> problem(rows, d, kind, with_norm, rows + d);
    const size_t count = size_t{rows} * d;
    const auto x_out = poisoned<float>(count);
    const DeviceArray<__nv_bfloat16> out(count, "test output");
    const auto rounded =
        run_twice<__nv_bfloat16>(out, [&] { residual_norm_bf16(problem.job(x_out.data()), rows, out.data(), how_); });
    for (size_t i = 0; i < count; ++i) {
      const double wanted = problem.result()[i];
      ASSERT_NEAR(value_of(rounded[i]), wanted, 0.51 * kBfloatStep * std::abs(wanted) + 1e-5) << "element " << i;
    }
    check_stream(x_out, problem);

    poison(x_out);
    const DeviceArray<float> floats(count, "test output");
    const auto exact =
        run_twice<float>(floats, [&] { residual_norm_float(problem.job(x_out.data()), rows, floats.data(), how_); });
    EXPECT_LT(difference(exact, problem.result()).relative, 1e-6);
    check_stream(x_out, problem);
  }

  static void check_stream(const DeviceArray<float>& x_out, const ResidualProblem<__nv_bfloat16>& problem) {
    const Difference off = difference(download(x_out), problem.stream());
    EXPECT_LT(off.relative, 1e-6);
    EXPECT_LT(off.largest, 1e-4);
  }
};

TEST_F(NormTest, SmallResidualNorm) {
  for (const ResidualKind kind : {ResidualKind::kPlain, ResidualKind::kDelta, ResidualKind::kExperts}) {
    for (const bool with_norm : {true, false}) {
      for (const uint32_t d : {32u, 96u, 1056u}) check_residual_norm(3, d, kind, with_norm);
    }
  }
}

// No multiple of four, as no model has it but nothing rules out.
TEST_F(NormTest, SmallOddWidth) { check_residual_norm(3, 1027, ResidualKind::kExperts, true); }

TEST_F(NormTest, RealWidths) {
  for (const uint32_t d : {1536u, 2560u, 2816u, 3840u, 5376u}) {
    check_residual_norm(1, d, ResidualKind::kDelta, true);
    check_residual_norm(513, d, ResidualKind::kDelta, true);
    check_residual_norm(1025, d, ResidualKind::kDelta, true);
    check_residual_norm(1100, d, ResidualKind::kPlain, true);
    check_residual_norm(33, d, ResidualKind::kExperts, true);
  }
}

TEST_F(NormTest, SmallWidestRow) {
  check_residual_norm(2, 8192, ResidualKind::kExperts, true);
  const ResidualProblem<__nv_bfloat16> problem(1, 8196, ResidualKind::kPlain, true, 1);
  EXPECT_THROW(residual_norm_float(problem.job(nullptr), 1, nullptr, how_), std::logic_error);
}

TEST_F(NormTest, SmallInPlaceAndWithoutAResult) {
  constexpr uint32_t kRows = 7, kD = 256;
  const ResidualProblem<__nv_bfloat16> problem(kRows, kD, ResidualKind::kDelta, true, 9);
  const auto x = upload(problem.x());
  ResidualNormOf<__nv_bfloat16> job = problem.job(x.data());
  job.x = x.data();
  residual_norm_bf16(job, kRows, nullptr, how_);
  synchronise();
  check_stream(x, problem);
}

TEST_F(NormTest, SmallGatherFloatRows) {
  constexpr uint32_t kRows = 9, kD = 300;
  const RandomValues<float> x(size_t{kRows} * kD, 1.0f, 10);
  const std::vector<uint32_t> index = {8, 0, 0, 5, 7};
  const auto device_index = upload(index);
  const DeviceArray<float> out(index.size() * kD, "test output");
  const auto found = run_twice<float>(out, [&] {
    gather_float_rows(x.device.data(), device_index.data(), static_cast<uint32_t>(index.size()), kD, out.data(), how_);
  });
  for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], x.floats[index[i / kD] * kD + i % kD]) << i;
}

TEST_F(NormTest, SmallToBf16) {
  for (const size_t count : {size_t{1}, size_t{255}, size_t{256}, size_t{1001}}) {
    const RandomValues<float> values(count, 100.0f, count);
    const DeviceArray<__nv_bfloat16> out(count, "test output");
    const auto found = run_twice<__nv_bfloat16>(out, [&] { to_bf16(values.device.data(), count, out.data(), how_); });
    EXPECT_EQ(to_floats(found), to_floats(to_bfloats(values.floats)));
  }
}

}  // namespace
}  // namespace carat::cuda
