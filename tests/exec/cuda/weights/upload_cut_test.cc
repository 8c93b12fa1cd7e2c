#include "exec/cuda/weights/upload_cut.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/random.h"

namespace carat::cuda {
namespace {

// Every row once and in order, parts aligned and apart from each other, no load larger than it may be.
void check_cut(const std::vector<UploadRows>& matrices, uint64_t load_bytes) {
  std::vector<uint64_t> expected_row(matrices.size());
  size_t current = 0;
  for (const UploadLoad& load : cut_uploads(matrices, load_bytes)) {
    ASSERT_FALSE(load.parts.empty());
    uint64_t end = 0;
    for (const UploadPart& part : load.parts) {
      ASSERT_LT(part.matrix, matrices.size());
      ASSERT_GE(part.matrix, current);
      current = part.matrix;
      EXPECT_EQ(part.first_row, expected_row[part.matrix]);
      EXPECT_GT(part.rows, 0u);
      expected_row[part.matrix] += part.rows;
      EXPECT_EQ(part.offset % kUploadAlignment, 0u);
      EXPECT_GE(part.offset, end);
      EXPECT_LT(part.offset, end + kUploadAlignment) << "room was left unused";
      end = part.offset + part.rows * matrices[part.matrix].row_bytes;
    }
    EXPECT_EQ(load.bytes, end);
    const bool single_row = load.parts.size() == 1 && load.parts[0].rows == 1;
    EXPECT_TRUE(load.bytes <= load_bytes || single_row) << load.bytes;
  }
  for (size_t i = 0; i < matrices.size(); ++i) EXPECT_EQ(expected_row[i], matrices[i].rows) << "matrix " << i;
}

TEST(UploadCut, NothingIsNoLoad) {
  EXPECT_TRUE(cut_uploads({}, 1024).empty());
  EXPECT_TRUE(cut_uploads(std::vector<UploadRows>{{0, 34}}, 1024).empty());
}

TEST(UploadCut, SmallMatricesShareALoad) {
  const std::vector<UploadRows> matrices = {{3, 34}, {1, 34}, {2, 18}};
  const auto loads = cut_uploads(matrices, 1024);
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].parts.size(), 3u);
  EXPECT_EQ(loads[0].bytes, 512u + 36u);
  check_cut(matrices, 1024);
}

TEST(UploadCut, ALargeMatrixTakesSeveralLoadsOfWholeRows) {
  const std::vector<UploadRows> matrices = {{10, 300}};
  const auto loads = cut_uploads(matrices, 1000);
  ASSERT_EQ(loads.size(), 4u);
  EXPECT_EQ(loads[0].bytes, 900u);
  EXPECT_EQ(loads[3].bytes, 300u);
  check_cut(matrices, 1000);
}

// A full load leaves no room for the next part's alignment; one that is exactly full is not cut.
TEST(UploadCut, EdgesOfALoad) {
  for (const uint64_t row_bytes : {1u, 255u, 256u, 257u, 511u, 512u, 513u, 1023u, 1024u, 1025u, 5000u}) {
    for (const uint64_t rows : {1u, 2u, 3u, 4u, 5u, 17u}) {
      check_cut({{rows, row_bytes}, {rows, row_bytes}, {1, 1}, {rows, 34}}, 1024);
    }
  }
}

TEST(UploadCut, RandomMatrices) {
  test::Random random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<UploadRows> matrices(1 + random.below(8));
    for (UploadRows& matrix : matrices) matrix = {random.below(40), 1 + random.below(3000)};
    check_cut(matrices, 256 + random.below(8000));
  }
}

}  // namespace
}  // namespace carat::cuda
