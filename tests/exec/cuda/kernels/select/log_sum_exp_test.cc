#include "exec/cuda/kernels/select/log_sum_exp.h"

#include "exec/cuda/device/gpu_fixture.h"

namespace carat::cuda {
namespace {

class LogSumExpTest : public GpuTest {
 protected:
  // log(sum(exp(logit))) of each row, by the kernel. The parts are where nobody has cleared them, and come out the same
  // twice.
  std::vector<double> log_sums(const std::vector<float>& logits, uint32_t rows, uint32_t V) {
    const auto device = upload(logits);
    const DeviceArray<LogSumPart> parts(size_t{rows} * kLogSumParts, "parts");
    const std::vector<LogSumPart> found =
        run_twice<LogSumPart>(parts, [&] { log_sum_parts(device.data(), rows, V, parts.data(), how_); });
    std::vector<double> sums;
    for (size_t r = 0; r < rows; ++r) {
      sums.push_back(join_log_sums(std::span(found).subspan(r * kLogSumParts, kLogSumParts)));
    }
    return sums;
  }

  static double plainly(const float* row, uint32_t V) {
    double largest = -INFINITY, sum = 0.0;
    for (uint32_t i = 0; i < V; ++i) largest = std::max(largest, static_cast<double>(row[i]));
    for (uint32_t i = 0; i < V; ++i) sum += row[i] == -INFINITY ? 0.0 : std::exp(row[i] - largest);
    return largest + std::log(sum);
  }

  void expect_near_double(const std::vector<float>& logits, uint32_t rows, uint32_t V) {
    const std::vector<double> sums = log_sums(logits, rows, V);
    for (size_t r = 0; r < rows; ++r) {
      const double expected = plainly(&logits[r * V], V);
      EXPECT_NEAR(sums[r], expected, 1e-6) << "row " << r << " of " << rows << ", V " << V;
    }
  }
};

// Fewer logits than parts, than threads, a prime number of them, and the next of a power of two.
TEST_F(LogSumExpTest, SmallRaggedVocabularies) {
  for (const uint32_t V : {1u, 2u, 63u, 64u, 65u, 1000u, 4097u, 16411u, 65537u}) {
    expect_near_double(test::Random(V).normals(size_t{3} * V, 5.0f), 3, V);
  }
}

TEST_F(LogSumExpTest, SmallRealVocabularyAtEveryTemperature) {
  constexpr uint32_t kV = 262144;
  for (const float scale : {0.0f, 0.1f, 3.0f, 10.0f, 300.0f}) {
    expect_near_double(test::Random(3).normals(kV, scale), 1, kV);
  }
}

TEST_F(LogSumExpTest, ManyRowsOfTheRealVocabulary) {
  constexpr uint32_t kV = 262144, kRows = 64;
  expect_near_double(test::Random(4).normals(size_t{kRows} * kV, 4.0f), kRows, kV);
}

// What a row gets is the same bits wherever it stands and whatever stands beside it.
TEST_F(LogSumExpTest, SmallRowsAreIndependent) {
  constexpr uint32_t kV = 3001;
  const std::vector<float> alone = test::Random(5).normals(kV, 4.0f);
  std::vector<float> among(size_t{3} * kV, NAN);
  std::copy(alone.begin(), alone.end(), among.begin() + kV);
  EXPECT_EQ(log_sums(among, 3, kV)[1], log_sums(alone, 1, kV)[0]);
}

TEST_F(LogSumExpTest, SmallImpossibleTokens) {
  constexpr uint32_t kV = 5000;
  std::vector<float> logits(kV, -INFINITY);  // whole parts of them
  EXPECT_EQ(log_sums(logits, 1, kV)[0], -INFINITY);
  logits[4321] = 7.5f;
  EXPECT_NEAR(log_sums(logits, 1, kV)[0], 7.5, 1e-12);
  for (uint32_t i = 0; i < kV; i += 3) logits[i] = -0.25f;
  expect_near_double(logits, 1, kV);
}

TEST_F(LogSumExpTest, SmallLargeMagnitudes) {
  constexpr uint32_t kV = 700;
  for (const float offset : {1e4f, -1e4f}) {
    std::vector<float> logits = test::Random(6).normals(kV, 4.0f);
    for (float& logit : logits) logit += offset;
    expect_near_double(logits, 1, kV);
  }
  std::vector<float> far_apart(kV, -3e38f);
  far_apart[1] = 3e38f;
  EXPECT_EQ(log_sums(far_apart, 1, kV)[0], static_cast<double>(3e38f));
}

TEST_F(LogSumExpTest, SmallWhatIsNotFiniteStaysVisible) {
  constexpr uint32_t kV = 900;
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> logits = test::Random(7).normals(size_t{2} * kV, 4.0f);
    logits[kV + 450] = bad;
    const std::vector<double> sums = log_sums(logits, 2, kV);
    EXPECT_TRUE(std::isfinite(sums[0]));
    EXPECT_FALSE(std::isfinite(sums[1])) << bad;
  }
  EXPECT_TRUE(std::isnan(log_sums(std::vector<float>(kV, NAN), 1, kV)[0]));
}

}  // namespace
}  // namespace carat::cuda
