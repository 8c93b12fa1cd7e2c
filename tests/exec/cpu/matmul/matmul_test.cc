// Products with weights of every format, on every instruction set, against double-precision dots of the dequantised
// weights with the activations as they were quantised, on ragged shapes.
#include "exec/cpu/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "exec/cpu/kernel_tables.h"
#include "model/writing/random_blocks.h"
#include "support/random.h"

namespace carat::exec::cpu {
namespace {

using quant::Format;

struct Case {
  const KernelTable* table;
  Format format;
  bool int16;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const KernelTable* table : usable_kernels()) {
    for (const quant::FormatInfo& format : quant::formats()) {
      all.push_back({table, format.format, false});
      if (format.block > 1) all.push_back({table, format.format, true});
    }
  }
  return all;
}

std::string case_name(const testing::TestParamInfo<Case>& parameter) {
  const auto [table, format, int16] = parameter.param;
  return fmt::format("{}_{}{}", table->name, quant::info(format).name, int16 ? "_int16" : "");
}

struct Weights {
  std::vector<std::byte> bytes;
  model::Matrix matrix;
  std::vector<float> values;  // dequantised

  Weights(Format format, uint64_t rows, uint64_t cols, uint64_t key) {
    const quant::FormatInfo& info = quant::info(format);
    bytes.resize(rows * info.row_bytes(cols));
    model::RandomBlocks(format, 0.0f, 0.05f, key).fill(0, bytes.size() / info.bytes, bytes.data());
    finish(format, rows, cols);
  }
  void finish(Format format, uint64_t rows, uint64_t cols) {
    matrix = {.name = "test", .format = format, .cols = cols, .rows = rows, .data = bytes};
    values.resize(rows * cols);
    quant::info(format).dequantise(bytes.data(), values.data(), values.size());
  }
};

class Matmul : public testing::TestWithParam<Case> {
 protected:
  // With activations of eight bits the formats that came with codebooks, ternary digits and NVFP4 take the panel
  // always.
  bool has_kernel_of_its_own() const {
    const auto id = static_cast<uint32_t>(GetParam().format);
    const bool late =
        (id >= 16 && id <= 29 && GetParam().format != Format::kIQ4_NL) || id == 34 || id == 35 || id >= 40;
    return GetParam().int16 || !late || GetParam().format == Format::kIQ4_XS;
  }
  bool quantised() const { return quant::info(GetParam().format).block > 1; }

  ActivationBuffer quantise(const std::vector<float>& values, uint32_t rows, uint32_t cols,
                            const uint32_t* index = nullptr) const {
    ActivationBuffer buffer(*GetParam().table, rows, cols);
    buffer.set_source(values.data(), cols, rows, cols, GetParam().int16, index);
    if (quantised()) {
      for (uint32_t t = 0; t < buffer.tiles().count(); ++t) buffer.quantise(buffer.tiles().tile(t));
    }
    return buffer;
  }

  // Row r of what the kernel multiplies with.
  std::vector<double> row_of(const ActivationBuffer& buffer, uint32_t row) const {
    const Activations& view = buffer.view();
    std::vector<double> values(view.cols);
    if (!quantised()) {
      const uint32_t source = view.index != nullptr ? view.index[row] : row;
      for (uint32_t c = 0; c < view.cols; ++c) values[c] = view.values[source * view.stride + c];
      return values;
    }
    RowTiles::Tile tile = {0, 0};
    for (uint32_t t = 0; tile.first + tile.width <= row; ++t) tile = buffer.tiles().tile(t);
    const QuantisedRows q = buffer.slice(tile.first, tile.width).quantised;
    const uint32_t r = row - tile.first;
    for (uint32_t c = 0; c < view.cols; ++c) {
      const size_t at = 4 * (size_t{c / 4} * tile.width + r) + c % 4;
      const int quant = q.wide != nullptr ? wide_quant(*GetParam().table, q.wide, at) : q.narrow[at];
      values[c] = double{q.scales[c / 32 * tile.width + r]} * quant;
    }
    return values;
  }

  std::vector<float> multiply(const model::Matrix& matrix, const ActivationBuffer& buffer, unsigned threads = 1) const {
    return multiply(*GetParam().table, matrix, buffer, threads);
  }
  std::vector<float> multiply(const KernelTable& table, const model::Matrix& matrix, const ActivationBuffer& buffer,
                              unsigned threads = 1) const {
    const WeightMatrix weights(table, matrix, GetParam().int16);
    ThreadPool pool(threads);
    Multiplier multiplier(table, pool, buffer.view().rows);
    const size_t stride = matrix.rows + 3;
    std::vector<float> out(buffer.view().rows * stride, -77.0f);
    multiplier.run({&weights, &buffer.view(), out.data(), stride});
    std::vector<float> dense;
    for (uint32_t r = 0; r < buffer.view().rows; ++r) {
      const float* row = out.data() + r * stride;
      dense.insert(dense.end(), row, row + matrix.rows);
      for (size_t extra = matrix.rows; extra < stride; ++extra) EXPECT_EQ(row[extra], -77.0f) << "wrote past a row";
    }
    return dense;
  }

  void expect_product(const Weights& weights, const ActivationBuffer& buffer, const std::vector<float>& product) const {
    const size_t cols = weights.matrix.cols, outputs = weights.matrix.rows;
    for (uint32_t r = 0; r < buffer.view().rows; ++r) {
      const std::vector<double> row = row_of(buffer, r);
      for (size_t o = 0; o < outputs; ++o) {
        double sum = 0.0, magnitude = 0.0;
        for (size_t c = 0; c < cols; ++c) {
          const double term = double{weights.values[o * cols + c]} * row[c];
          sum += term;
          magnitude += std::abs(term);
        }
        // fp32 sums of exact integer dots; formats with a minimum add and subtract larger numbers than they end with.
        ASSERT_NEAR(product[r * outputs + o], sum, 4e-6 * magnitude + 1e-30) << "row " << r << ", output " << o;
      }
    }
  }
};

TEST_P(Matmul, EqualsTheDequantisedProductOnRaggedShapes) {
  const uint32_t block = quant::info(GetParam().format).block;
  test::Random random(11);
  const std::vector<uint32_t> widths = block == 1    ? std::vector<uint32_t>{1, 7, 16, 33, 100, 1056}
                                       : block == 32 ? std::vector<uint32_t>{32, 96, 1024, 1056, 2080}
                                       : block < 256 ? std::vector<uint32_t>{128, 384, 1152}
                                                     : std::vector<uint32_t>{256, 1024, 1280};
  for (const uint32_t cols : widths) {
    for (const uint32_t outputs : {1u, 3u, 8u, 15u, 16u, 17u, 40u}) {
      const Weights weights(GetParam().format, outputs, cols, cols + outputs);
      for (const uint32_t rows : {1u, 2u, 7u, 13u}) {
        const std::vector<float> values = random.normals(size_t{rows} * cols);
        const ActivationBuffer buffer = quantise(values, rows, cols);
        expect_product(weights, buffer, multiply(weights.matrix, buffer));
        if (HasFatalFailure()) FAIL() << cols << " columns, " << outputs << " outputs, " << rows << " rows";
      }
    }
  }
}

TEST_P(Matmul, ARowHasTheSameBitsInAnyBatchAndOnAnyNumberOfThreads) {
  const uint32_t cols = 1280, outputs = 50, rows = 15;
  const Weights weights(GetParam().format, outputs, cols, 3);
  const std::vector<float> values = test::Random(5).normals(size_t{rows} * cols);
  const std::vector<float> together = multiply(weights.matrix, quantise(values, rows, cols));
  EXPECT_EQ(together, multiply(weights.matrix, quantise(values, rows, cols), 3));
  for (const uint32_t few : {1u, 2u, 3u}) {
    for (uint32_t r = 0; r + few <= rows; ++r) {
      const std::vector<float> part(values.begin() + r * cols, values.begin() + (r + few) * cols);
      const std::vector<float> product = multiply(weights.matrix, quantise(part, few, cols));
      ASSERT_EQ(0, std::memcmp(product.data(), together.data() + r * outputs, product.size() * sizeof(float)))
          << few << " rows from row " << r;
    }
  }
}

TEST_P(Matmul, APanelChangesNoBit) {
  const KernelTable& panel =
      choose_kernels(KernelChoices::parse(fmt::format("dot={},decode=panel", GetParam().table->name)));
  if (quantised() && GetParam().table != &portable_kernels() && has_kernel_of_its_own()) {
    const KernelTable& direct = *GetParam().table;
    EXPECT_NE(panel.find_matmul(GetParam().format, GetParam().int16),
              direct.find_matmul(GetParam().format, GetParam().int16));
  }
  const uint32_t cols = 1280, outputs = 37;
  const Weights weights(GetParam().format, outputs, cols, 4);
  for (const uint32_t rows : {1u, 2u, 3u}) {
    const std::vector<float> values = test::Random(rows).normals(size_t{rows} * cols);
    const ActivationBuffer buffer = quantise(values, rows, cols);
    EXPECT_EQ(multiply(weights.matrix, buffer), multiply(panel, weights.matrix, buffer)) << rows << " rows";
  }
}

TEST_P(Matmul, AnIndexPicksRows) {
  const uint32_t cols = 256, outputs = 20;
  const Weights weights(GetParam().format, outputs, cols, 9);
  const std::vector<float> values = test::Random(6).normals(size_t{4} * cols);
  const uint32_t index[] = {3, 0, 0, 2, 1};
  const std::vector<float> all = multiply(weights.matrix, quantise(values, 4, cols));
  const std::vector<float> picked = multiply(weights.matrix, quantise(values, 5, cols, index));
  for (size_t r = 0; r < std::size(index); ++r) {
    ASSERT_EQ(0, std::memcmp(&picked[r * outputs], &all[index[r] * outputs], outputs * sizeof(float))) << "row " << r;
  }
}

TEST_P(Matmul, NotANumberReachesTheResult) {
  const uint32_t cols = 256;
  const Weights weights(GetParam().format, 20, cols, 9);
  std::vector<float> values(cols, 1.0f);
  values[77] = std::numeric_limits<float>::quiet_NaN();
  for (const float result : multiply(weights.matrix, quantise(values, 1, cols))) EXPECT_TRUE(std::isnan(result));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Matmul, testing::ValuesIn(cases()), case_name);

// Every byte a file may hold, not only what a quantiser would write: all quants and scale bits, extreme exponents.
TEST_P(Matmul, TakesEveryBitPattern) {
  const quant::FormatInfo& info = quant::info(GetParam().format);
  if (!quantised()) GTEST_SKIP() << "skipped: a float format has no fields";
  const uint32_t cols = 512, outputs = 33;
  Weights weights(GetParam().format, outputs, cols, 1);
  const std::vector<std::byte> sane = weights.bytes;
  weights.bytes = test::Random(21).bytes(sane.size());
  const auto keep = [&](size_t block, size_t offset, size_t count) {  // halves that are not finite say nothing
    std::memcpy(&weights.bytes[block * info.bytes + offset], &sane[block * info.bytes + offset], count);
  };
  for (size_t block = 0; block < sane.size() / info.bytes; ++block) {
    switch (info.format) {
      case Format::kQ2_K:
        keep(block, 80, 4);
        break;
      case Format::kQ3_K:
        keep(block, 108, 2);
        break;
      case Format::kQ6_K:
        keep(block, 208, 2);
        break;
      case Format::kTQ1_0:
        keep(block, 52, 2);
        break;
      case Format::kTQ2_0:
        keep(block, 64, 2);
        break;
      case Format::kIQ1_M:
        for (size_t word = 0; word < 4; ++word) keep(block, 49 + 2 * word, 1);
        break;
      case Format::kNVFP4:
        break;  // every scale is finite
      case Format::kMXFP4:
        weights.bytes[block * info.bytes] = static_cast<std::byte>(block % 8);
        break;
      case Format::kQ4_1:
      case Format::kQ5_1:
      case Format::kQ4_K:
      case Format::kQ5_K:
        keep(block, 0, 4);
        break;
      default:
        keep(block, 0, 2);
    }
  }
  weights.finish(GetParam().format, outputs, cols);
  // Large, so that the smallest MXFP4 scales (2^-128) do not vanish below fp32's range.
  const float scale = info.format == Format::kMXFP4 ? 1e30f : 1.0f;
  for (const uint32_t rows : {1u, 3u}) {  // one row has a loop of its own
    const ActivationBuffer buffer = quantise(test::Random(22).normals(size_t{rows} * cols, scale), rows, cols);
    expect_product(weights, buffer, multiply(weights.matrix, buffer));
  }
}

}  // namespace
}  // namespace carat::exec::cpu
