// The warpgroup product against double-precision sums over the weights' values, rounded to bf16 as unpack_bf16 does.
#include <algorithm>
#include <memory>

#include "exec/cuda/kernels/attention/warpgroup_fixture.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"
#include "exec/cuda/weights/packed_matrix.h"
#include "exec/cuda/weights/repack.h"

namespace carat::cuda {
namespace {

using quant::Format;

struct WgmmaCase {
  Format format = Format::kQ4_0;
  std::vector<uint32_t> groups;  // rows of each
  std::vector<uint32_t> parts;   // weight rows of each part, per group
  uint32_t k = 64;
  bool gather = false, geglu = false, fused_tensor = false;
  uint32_t width = 0;
  size_t samples = 0;  // results to compare; 0: all
};

class WgmmaTest : public WarpgroupTest {
 protected:
  static constexpr uint32_t kGuard = 3;  // rows after the results that must stay untouched

  struct Problem {
    std::vector<uint32_t> offsets{0}, source;
    std::vector<std::unique_ptr<PackedMatrix>> matrices;
    WgmmaGemm product;
    uint32_t out_columns = 0;
  };

  // Weights of each part (or all parts in one tensor, expert by expert).
  static void add_weights(const WgmmaCase& c, Problem& problem) {
    const auto groups = static_cast<uint32_t>(c.groups.size());
    uint32_t all = 0;
    for (const uint32_t rows : c.parts) all += rows;
    if (c.fused_tensor) problem.matrices.push_back(std::make_unique<PackedMatrix>(c.format, groups * all, c.k, all));
    uint32_t first = 0;
    for (const uint32_t rows : c.parts) {
      if (!c.fused_tensor) {
        problem.matrices.push_back(std::make_unique<PackedMatrix>(c.format, groups * rows, c.k, rows + first));
      }
      WgmmaPart part;
      part.weights = problem.matrices.back()->view();
      part.rows = rows;
      part.stride = c.fused_tensor ? all : rows;
      part.offset = c.fused_tensor ? first : 0;
      problem.product.parts.push_back(part);
      first += rows;
    }
    problem.out_columns = c.geglu ? c.parts.front() : all;
    problem.product.geglu = c.geglu;
  }

  // sum over k of a and bf16(weight) for result (row, column) of part p.
  static double wanted_sum(const WgmmaCase& c, const Problem& problem, const std::vector<float>& a, uint32_t row,
                           size_t p, uint32_t column, double& scale) {
    const auto after = std::upper_bound(problem.offsets.begin(), problem.offsets.end(), row);
    const auto group = static_cast<uint32_t>(after - problem.offsets.begin()) - 1;
    const WgmmaPart& part = problem.product.parts[p];
    const PackedMatrix& matrix = *problem.matrices[c.fused_tensor ? 0 : p];
    const float* w = matrix.row(uint64_t{group} * part.stride + part.offset + column);
    const float* x = &a[size_t{problem.source[row]} * c.k];
    double sum = 0.0;
    for (uint32_t i = 0; i < c.k; ++i) {
      const double term = double{x[i]} * double{__bfloat162float(__float2bfloat16_rn(w[i]))};
      sum += term;
      scale += term * term;
    }
    return sum;
  }

  static bool is_right(const WgmmaCase& c, const Problem& problem, const std::vector<float>& a, size_t i, float found) {
    const auto row = static_cast<uint32_t>(i / problem.out_columns);
    auto column = static_cast<uint32_t>(i % problem.out_columns);
    double scale = 0.0, wanted = 0.0, allowed = 0.0;
    if (c.geglu) {
      const double gate = wanted_sum(c, problem, a, row, 0, column, scale);
      const double up = wanted_sum(c, problem, a, row, 1, column, scale);
      wanted = gelu_double(gate) * up;
      allowed = 2e-5 * std::sqrt(scale) * (std::abs(gate) + std::abs(up) + 1.0);
    } else {
      size_t p = 0;
      while (column >= c.parts[p]) column -= c.parts[p++];
      wanted = wanted_sum(c, problem, a, row, p, column, scale);
      allowed = 2e-5 * std::sqrt(scale);
    }
    return std::abs(double{found} - wanted) <= allowed + std::abs(wanted) / 250.0;  // half a step of bf16
  }

  void check_product(const WgmmaCase& c) {
    Problem problem;
    for (const uint32_t rows : c.groups) problem.offsets.push_back(problem.offsets.back() + rows);
    const uint32_t total = problem.offsets.back();
    SCOPED_TRACE(testing::Message() << quant::info(c.format).name << ": " << total << " rows of " << c.groups.size()
                                    << " groups, " << c.parts.size() << " parts from " << c.parts.front() << ", k "
                                    << c.k << ", width " << c.width << (c.gather ? ", gathered" : "")
                                    << (c.geglu ? ", geglu" : ""));
    add_weights(c, problem);
    // Every second row of a gathered operand is NaN and must never be read.
    const uint32_t a_rows = c.gather ? 2 * (total / 2 + 1) : total;
    RandomValues<__nv_bfloat16> a(size_t{a_rows} * c.k, 1.0f, total + c.k);
    problem.source.resize(total);
    test::Random random(c.k);
    for (uint32_t i = 0; i < total; ++i) {
      problem.source[i] = c.gather ? 2 * static_cast<uint32_t>(random.below(total / 2 + 1)) : i;
    }
    if (c.gather) {
      for (uint32_t r = 1; r < a_rows; r += 2) {
        std::fill_n(a.typed.begin() + static_cast<ptrdiff_t>(size_t{r} * c.k), c.k, __float2bfloat16_rn(NAN));
      }
      a.device = upload(a.typed);
    }
    const auto source = upload(problem.source);
    const auto offsets = upload(problem.offsets);
    const DeviceArray<__nv_bfloat16> out(size_t{total + kGuard} * problem.out_columns, "test output");
    WgmmaGemm& product = problem.product;
    product.a = a.device.data();
    product.source = c.gather ? source.data() : nullptr;
    product.offsets = c.groups.size() > 1 ? offsets.data() : nullptr;
    product.groups = static_cast<uint32_t>(c.groups.size());
    product.total = total;
    product.out = out.data();
    ASSERT_TRUE(wgmma_can(product));
    const auto found = run_twice<__nv_bfloat16>(out, [&] { wgmma_gemm(product, sm_count_, how_, c.width); });
    compare(c, problem, a.floats, found);
  }

  static void compare(const WgmmaCase& c, const Problem& problem, const std::vector<float>& a,
                      const std::vector<__nv_bfloat16>& found) {
    const size_t results = size_t{problem.offsets.back()} * problem.out_columns;
    const size_t count = c.samples == 0 ? results : c.samples;
    for (size_t i = results; i < found.size(); ++i) {
      ASSERT_TRUE(std::isnan(value_of(found[i]))) << "wrote beyond the results";
    }
    std::vector<uint8_t> wrong(count, 0);
    host_pool().parallel_for(count, 64, [&](size_t begin, size_t end, unsigned) {
      for (size_t s = begin; s < end; ++s) {
        const size_t i = c.samples == 0 ? s : test::Random(s).below(results);
        wrong[s] = !is_right(c, problem, a, i, value_of(found[i]));
      }
    });
    const auto failures = std::count(wrong.begin(), wrong.end(), uint8_t{1});
    const auto first = static_cast<size_t>(std::find(wrong.begin(), wrong.end(), 1) - wrong.begin());
    EXPECT_EQ(failures, 0) << "of " << count << ", first at row " << first / problem.out_columns << ", column "
                           << first % problem.out_columns;
    for (size_t i = 0; i < results; ++i) ASSERT_FALSE(std::isnan(value_of(found[i]))) << "element " << i;
  }

  static constexpr Format kFormats[] = {Format::kQ8_0, Format::kQ4_0, Format::kQ4_K, Format::kBF16};
};

TEST_F(WgmmaTest, SmallOneTile) {
  for (const Format format : kFormats) check_product({format, {32}, {128}, 256, false, false, false, 32});
}

TEST_F(WgmmaTest, SmallEveryWidth) {
  for (const Format format : kFormats) {
    for (const uint32_t width : kWgmmaWidths) check_product({format, {300}, {136}, 512, false, false, false, width});
  }
}

// Fewer blocks of 64 columns than a round of four, several, and what is left of a round. K-quants have whole steps.
TEST_F(WgmmaTest, SmallEveryDepth) {
  for (const uint32_t k : {32u, 64u, 96u, 128u, 192u, 256u, 320u, 448u, 704u, 1024u, 1088u}) {
    for (const Format format : kFormats) {
      if (format == Format::kQ4_K && k % 256 != 0) continue;
      check_product({format, {70}, {72}, k, false, false, false, 32});
      check_product({format, {70}, {72}, k, true, false, false, 96});
      check_product({format, {170}, {72}, k, false, false, false, 160});
    }
  }
}

TEST_F(WgmmaTest, SmallRaggedGroups) {
  const std::vector<uint32_t> groups = {0, 1, 7, 8, 31, 33, 0, 127, 129, 300, 0};
  for (const Format format : kFormats) {
    for (const bool gather : {false, true}) {
      check_product({format, groups, {200}, 256, gather});
      check_product({format, groups, {200}, 512, gather, false, false, 256});
      check_product({format, groups, {200}, 512, gather, false, false, 64});
    }
  }
}

TEST_F(WgmmaTest, SmallPartsSideBySide) {
  for (const Format format : kFormats) {
    check_product({format, {77}, {256, 64, 72}, 256});
    check_product({format, {40, 50}, {8, 136}, 256, true});
    check_product({format, {40, 50}, {72, 136}, 256, false, false, true});
  }
}

TEST_F(WgmmaTest, SmallGeglu) {
  for (const Format format : kFormats) {
    check_product({format, {77}, {200, 200}, 256, false, true});
    check_product({format, {40, 0, 50}, {72, 72}, 256, true, true, true});
    check_product({format, {40, 0, 150}, {72, 72}, 512, true, true, false, 128});
  }
}

// More tiles than multiprocessors, so that blocks run several; most groups empty, one with nearly all rows.
TEST_F(WgmmaTest, SkewedGroups) {
  std::vector<uint32_t> groups(128, 0);
  groups[127] = 700;
  groups[0] = 3000;
  groups[64] = 1;
  for (const Format format : kFormats) {
    check_product({format, groups, {704}, 256, true, false, false, 0, 50000});
    check_product({format, groups, {704}, 256, false, false, false, 32, 50000});
  }
  check_product({Format::kQ4_0, std::vector<uint32_t>(256, 1), {64}, 256, true});
}

TEST_F(WgmmaTest, RealShapes) {
  for (const uint32_t rows : {800u, 4096u, 16384u}) {  // 100, 512 and 2048 tokens with 8 experts each
    std::vector<uint32_t> groups(16, 0);               // an eighth of the experts, to keep the host's share small
    test::Random random(rows);
    for (uint32_t i = 0; i < rows / 8; ++i) ++groups[random.below(groups.size())];
    for (const Format format : {Format::kQ4_0, Format::kQ8_0}) {
      check_product({format, groups, {704, 704}, 2816, true, true, true, 0, 20000});
      check_product({format, groups, {2816}, 704, false, false, false, 0, 20000});
    }
  }
  check_product({Format::kQ4_0, {2048}, {2048, 512, 512}, 2560, false, false, false, 0, 20000});
  check_product({Format::kQ4_K, {512}, {10240, 10240}, 2560, false, true, false, 0, 20000});
}

// The same weights as bf16 and dequantised on the way: the same products in the same order, so the same bits.
TEST_F(WgmmaTest, SmallDequantisedIsWhatUnpackingGives) {
  for (const Format format : {Format::kQ8_0, Format::kQ4_0, Format::kQ4_K}) {
    SCOPED_TRACE(quant::info(format).name);
    constexpr uint32_t kRows = 100, kN = 264, kK = 1280;
    const PackedMatrix matrix(format, kN, kK, 5);
    const RandomValues<__nv_bfloat16> a(size_t{kRows} * kK, 1.0f, 6);
    const DeviceArray<__nv_bfloat16> unpacked(size_t{kN} * kK, "test weights"), out(size_t{kRows} * kN, "test output");
    unpack_bf16(matrix.view(), unpacked.data(), kK, stream_->get());
    WgmmaGemm product;
    product.a = a.device.data();
    product.total = kRows;
    product.out = out.data();
    const auto run = [&](const WgmmaPart& part) {
      product.parts = {part};
      return run_twice<__nv_bfloat16>(out, [&] { wgmma_gemm(product, sm_count_, how_); });
    };
    WgmmaPart packed;
    packed.weights = matrix.view();
    packed.rows = kN;
    const auto expected = run(wgmma_bf16(unpacked.data(), 1, kN, kK)), found = run(packed);
    EXPECT_EQ(std::memcmp(expected.data(), found.data(), out.bytes()), 0);
  }
}

}  // namespace

// --- decisions that need no GPU -------------------------------------------------------------------------------------
TEST(WgmmaTiles, GroupedWidthFollowsTheMean) {
  EXPECT_EQ(wgmma_grouped_width(128, 128), 32u);
  EXPECT_EQ(wgmma_grouped_width(4096, 128), 64u);    // 32 rows and two deviations of about 5.6
  EXPECT_EQ(wgmma_grouped_width(16384, 128), 160u);  // 128 and 11
  EXPECT_EQ(wgmma_grouped_width(65536, 128), 192u);  // 556 rows: three tiles
  EXPECT_EQ(wgmma_grouped_width(100000, 1), 256u);
}

TEST(WgmmaTiles, DenseWidthFillsTheMultiprocessors) {
  EXPECT_EQ(wgmma_dense_width(20, 1000, 132, true), 32u);
  EXPECT_EQ(wgmma_dense_width(2048, 336, 132, true), 256u);  // 31B gate and up
  EXPECT_EQ(wgmma_dense_width(512, 336, 132, true), 256u);   // ... where narrower tiles would dequantise twice
  EXPECT_EQ(wgmma_dense_width(512, 20, 132, true), 96u);     // E4B down: 120 tiles of 96 instead of 40 of 256
  EXPECT_EQ(wgmma_dense_width(512, 20, 132, false), 96u);
  for (const uint32_t rows : {1u, 31u, 100u, 512u, 2048u, 8192u}) {
    for (const uint32_t row_tiles : {1u, 20u, 160u}) {
      const uint32_t width = wgmma_dense_width(rows, row_tiles, 132, true);
      EXPECT_TRUE(std::count(std::begin(kWgmmaWidths), std::end(kWgmmaWidths), width) == 1) << width;
      EXPECT_GE(wgmma_most_tiles(rows, 1, row_tiles, width), uint64_t{wgmma_ceil(rows, width)} * row_tiles);
    }
  }
}

TEST(WgmmaTiles, WhatCanRun) {
  WgmmaGemm product;
  EXPECT_FALSE(wgmma_can(product));
  WgmmaPart part;
  part.weights = {.packing = Packing::kQ4, .rows = 64, .cols = 256, .steps = 1};
  part.rows = 64;
  product.parts = {part};
  EXPECT_TRUE(wgmma_can(product));
  product.geglu = true;  // one part
  EXPECT_FALSE(wgmma_can(product));
  product.parts = {part, part};
  EXPECT_TRUE(wgmma_can(product));
  product.parts[1].rows = 32;
  EXPECT_FALSE(wgmma_can(product));
  product.geglu = false;
  EXPECT_TRUE(wgmma_can(product));
  product.parts[1].rows = 33;
  EXPECT_FALSE(wgmma_can(product));
  product.parts[1] = part;
  product.parts[1].weights.packing = Packing::kQ8;  // one packing for all
  EXPECT_FALSE(wgmma_can(product));
  product.parts = {part};
  product.parts[0].weights.packing = Packing::kQ6K;
  EXPECT_FALSE(wgmma_can(product));
  product.parts[0] = part;
  product.parts[0].weights.cols = 252;
  EXPECT_FALSE(wgmma_can(product));
}

}  // namespace carat::cuda
