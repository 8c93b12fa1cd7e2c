#include "exec/reference/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "quant/format.h"
#include "support/random.h"

namespace carat::exec::reference {
namespace {

Block block_of(std::vector<std::vector<float>> rows) {
  Block block(rows.size(), rows.front().size());
  for (size_t r = 0; r < rows.size(); ++r) std::copy(rows[r].begin(), rows[r].end(), block.row(r).begin());
  return block;
}

TEST(ReferenceArithmetic, LinearIsRowsTimesColumns) {
  test::Random random(1);
  const size_t cols = 48, outputs = 37, rows = 70;  // more rows than two tiles, no multiple of anything
  const std::vector<float> weights = random.normals(cols * outputs);
  model::Matrix matrix;
  matrix.cols = cols;
  matrix.rows = outputs;
  matrix.data = std::as_bytes(std::span(weights));
  Block x(rows, cols);
  for (size_t r = 0; r < rows; ++r) {
    for (float& value : x.row(r)) value = random.normal();
  }
  ThreadPool one(1), three(3);
  const Block y = linear(one, matrix, x), same = linear(three, matrix, x);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < outputs; ++o) {
      double sum = 0.0;
      for (size_t i = 0; i < cols; ++i) sum += double{weights[o * cols + i]} * x.row(r)[i];
      EXPECT_EQ(y.row(r)[o], static_cast<float>(sum));
      EXPECT_EQ(same.row(r)[o], y.row(r)[o]);
    }
  }
}

TEST(ReferenceArithmetic, DotOfAnyLength) {
  std::vector<float> a, b;
  double sum = 0.0;
  for (int i = 1; i <= 11; ++i) {
    a.push_back(static_cast<float>(i));
    b.push_back(static_cast<float>(i + 1));
    sum += i * (i + 1);
    EXPECT_EQ(dot(a, b), sum) << i;
  }
}

TEST(ReferenceArithmetic, RmsNorm) {
  std::vector<float> x = {3.0f, -4.0f};
  rms_norm(x, {}, 0.5f);  // mean square 12.5, plus eps 13
  EXPECT_FLOAT_EQ(x[0], static_cast<float>(3.0 / std::sqrt(13.0)));
  const Block heads = block_of({{3.0f, -4.0f, 6.0f, 8.0f}});
  Block normed = heads;
  const std::vector<float> weight = {2.0f, 10.0f};
  rms_norm_heads(normed, 2, weight, 0.0f);
  EXPECT_FLOAT_EQ(normed.row(0)[1], static_cast<float>(-40.0 / std::sqrt(12.5)));
  EXPECT_FLOAT_EQ(normed.row(0)[2], static_cast<float>(12.0 / std::sqrt(50.0)));
}

TEST(ReferenceArithmetic, Gelu) {
  EXPECT_EQ(gelu(0.0), 0.0);
  EXPECT_NEAR(gelu(1.0), 0.841192, 1e-6);
  EXPECT_NEAR(gelu(-1.0), -0.158808, 1e-6);
  EXPECT_NEAR(gelu(20.0), 20.0, 1e-12);
  EXPECT_NEAR(gelu(-20.0), 0.0, 1e-12);
}

TEST(ReferenceArithmetic, SoftmaxOfLargeScores) {
  std::vector<double> scores = {1000.0, 1000.0 + std::log(3.0)};
  softmax(scores);
  EXPECT_NEAR(scores[0], 0.25, 1e-12);
  EXPECT_NEAR(scores[1], 0.75, 1e-12);
}

TEST(ReferenceArithmetic, RotationTurnsHalfSplitPairs) {
  const std::vector<float> divisors = {1.0f, 1e30f};
  const Rotation rotation(4, 100.0, divisors);
  std::vector<float> two_heads = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f};
  rotation.apply(two_heads, 3);
  const double c = std::cos(3.0), s = std::sin(3.0);
  EXPECT_FLOAT_EQ(two_heads[0], static_cast<float>(1.0 * c - 3.0 * s));
  EXPECT_FLOAT_EQ(two_heads[2], static_cast<float>(1.0 * s + 3.0 * c));
  EXPECT_EQ(two_heads[1], 2.0f);  // a divisor of 1e30 stops the rotation
  EXPECT_EQ(two_heads[3], 4.0f);
  EXPECT_FLOAT_EQ(two_heads[4], static_cast<float>(5.0 * c - 7.0 * s));

  const Rotation plain(4, 100.0, {});
  std::vector<float> head = {0.0f, 1.0f, 0.0f, 0.0f};
  plain.apply(head, 5);  // pair 1 turns by 5 * 100^(-2/4)
  EXPECT_FLOAT_EQ(head[1], static_cast<float>(std::cos(0.5)));
  EXPECT_FLOAT_EQ(head[3], static_cast<float>(std::sin(0.5)));
}

TEST(ReferenceArithmetic, GatherPicksRowsInOrder) {
  const Block block = block_of({{1.0f}, {2.0f}, {3.0f}});
  const std::vector<size_t> rows = {2, 0};
  const Block picked = gather(block, rows);
  ASSERT_EQ(picked.rows(), 2u);
  EXPECT_EQ(picked.row(0)[0], 3.0f);
  EXPECT_EQ(picked.row(1)[0], 1.0f);
}

}  // namespace
}  // namespace carat::exec::reference
