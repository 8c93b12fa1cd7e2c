#include "exec/cuda/weights/repack.h"

#include <bit>
#include <string>

#include "base/float16.h"
#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/weights/packed_matrix.h"
#include "quant/element_values.h"

namespace carat::cuda {
namespace {

using quant::Format;

class RepackTest : public GpuTest, public testing::WithParamInterface<quant::FormatInfo> {
 protected:
  // Rows 0 ... rows - 1 of the matrix as fp32, with a column of the output that must stay untouched.
  std::vector<float> gather_all(const PackedMatrix& matrix, float scale) const {
    const uint32_t rows = matrix.view().rows, cols = matrix.view().cols, leading = cols + 1;
    std::vector<int32_t> ids(rows);
    for (uint32_t r = 0; r < rows; ++r) ids[r] = static_cast<int32_t>(r);
    const auto device_ids = upload(ids);
    const DeviceArray<float> out(size_t{rows} * leading, "test output");
    const auto padded = run_twice<float>(out, [&] {
      gather_rows(matrix.view(), device_ids.data(), rows, scale, out.data(), leading, how_.stream, how_.overlap);
    });
    std::vector<float> values;
    for (size_t r = 0; r < rows; ++r) {
      const auto row = padded.begin() + static_cast<ptrdiff_t>(r * leading);
      values.insert(values.end(), row, row + cols);
      EXPECT_TRUE(std::isnan(padded[r * leading + cols])) << "wrote beyond row " << r;
    }
    return values;
  }

  // Bit for bit, any NaN like any other.
  static void expect_same(const std::vector<float>& found, const std::vector<float>& expected,
                          const std::string& what) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
          << what << ", element " << i << ": " << found[i] << ", expected " << expected[i];
    }
  }

  void check_matrix(uint32_t rows, uint32_t cols, const std::vector<uint32_t>& pieces, test::Random& random) {
    const quant::FormatInfo& format = GetParam();
    const std::string what = std::to_string(rows) + " x " + std::to_string(cols);
    const PackedMatrix matrix(format, random_rows(format, rows, cols, random), rows, cols, pieces);
    expect_same(gather_all(matrix, 1.0f), matrix.values(), what);
    check_bf16(matrix, what);
  }

  void check_bf16(const PackedMatrix& matrix, const std::string& what) const {
    const uint32_t rows = matrix.view().rows, cols = matrix.view().cols;
    std::vector<float> expected(matrix.values());
    for (float& value : expected) value = bfloat_to_float(float_to_bfloat(value));
    for (const uint32_t leading : {cols, cols + 5}) {
      const DeviceArray<__nv_bfloat16> out(size_t{rows} * leading, "test output");
      const auto padded =
          run_twice<__nv_bfloat16>(out, [&] { unpack_bf16(matrix.view(), out.data(), leading, how_.stream); });
      std::vector<float> values;
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < leading; ++c) {
          const float value = value_of(padded[r * leading + c]);
          if (c < cols) {
            values.push_back(value);
          } else {
            EXPECT_TRUE(std::isnan(value)) << "wrote beyond row " << r;
          }
        }
      }
      expect_same(values, expected, "bf16 of " + what);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, RepackTest, testing::ValuesIn(quant::formats().begin(), quant::formats().end()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST_P(RepackTest, SmallMatrices) {
  test::Random random(1);
  for (const uint32_t cols : {32u, 64u, 256u, 704u}) {
    if (cols % GetParam().block != 0) continue;
    for (const uint32_t rows : {1u, 3u}) check_matrix(rows, cols, {0}, random);
  }
}

TEST_P(RepackTest, RealWidths) {
  test::Random random(2);
  for (const uint32_t cols : {2112u, 2560u, 10240u}) {
    if (cols % GetParam().block == 0) check_matrix(33, cols, {0}, random);
  }
}

TEST_P(RepackTest, SmallPieces) {
  test::Random random(3);
  check_matrix(33, 512, {0, 1, 7, 32}, random);
}

// Any scale a file can have, subnormal and huge ones included. Values that fp16 or fp32 cannot hold become infinite, as
// they do on the host.
TEST_P(RepackTest, SmallExtremeScales) {
  const quant::FormatInfo& format = GetParam();
  constexpr uint32_t kRows = 5, kCols = 1024;
  for (const test::Scales scales : {test::Scales::kFinite, test::Scales::kSubnormal}) {
    const PackedMatrix matrix(format, test::random_blocks(format, kRows * kCols / format.block, 4, scales), kRows,
                              kCols, {0});
    expect_same(gather_all(matrix, 1.0f), matrix.values(), std::string(format.name));
  }
}

TEST_P(RepackTest, SmallGatherScalesAndPicks) {
  constexpr uint32_t kRows = 9, kCols = 256;
  constexpr float kScale = 50.5964425f;
  const PackedMatrix matrix(GetParam().format, kRows, kCols, 5);
  // Outside the matrix: NaN, so that a bad token cannot pass for a real one.
  const std::vector<int32_t> ids = {8, 0, 3, 3, -1, 9, 2147483647};
  const auto device_ids = upload(ids);
  const DeviceArray<float> out(ids.size() * kCols, "test output");
  const auto found = run_twice<float>(out, [&] {
    gather_rows(matrix.view(), device_ids.data(), static_cast<uint32_t>(ids.size()), kScale, out.data(), kCols,
                how_.stream, how_.overlap);
  });
  std::vector<float> expected;
  for (const int32_t id : ids) {
    for (uint32_t c = 0; c < kCols; ++c) {
      const bool inside = id >= 0 && static_cast<uint32_t>(id) < kRows;
      expected.push_back(inside ? matrix.row(static_cast<uint64_t>(id))[c] * kScale : NAN);
    }
  }
  expect_same(found, expected, "gathered rows");
}

// A view of some rows is the matrix those rows would be.
TEST_P(RepackTest, SmallRowsOfAMatrix) {
  constexpr uint32_t kRows = 12, kCols = 512, kFirst = 5, kCount = 4;
  const PackedMatrix matrix(GetParam().format, kRows, kCols, 6);
  const PackedView part = packed_rows(matrix.view(), kFirst, kCount);
  const DeviceArray<__nv_bfloat16> out(size_t{kCount} * kCols, "test output");
  const auto found = run_twice<__nv_bfloat16>(out, [&] { unpack_bf16(part, out.data(), kCols, how_.stream); });
  std::vector<float> expected(matrix.row(kFirst), matrix.row(kFirst + kCount));
  for (float& value : expected) value = bfloat_to_float(float_to_bfloat(value));
  expect_same(to_floats(found), expected, "rows of a matrix");
}

TEST(Packing, EveryFormatHasOneAndItsBytesFit) {
  for (const quant::FormatInfo& format : quant::formats()) {
    const Packing packing = packing_of(format.format);
    // A packing never takes less than the file's bits would need, nor more than fp32.
    const double bits = packed_bytes(packing).total() * 8.0 / kStep;
    EXPECT_GE(bits, format.bits_per_weight() - 1e-9) << format.name;
    EXPECT_LE(bits, 32.0) << format.name;
    EXPECT_EQ(is_float_packing(packing), packed_bytes(packing).scales == 0) << format.name;
  }
}

}  // namespace
}  // namespace carat::cuda
