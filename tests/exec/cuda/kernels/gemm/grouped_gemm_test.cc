#include <algorithm>
#include <numeric>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/moe/moe.h"

namespace carat::cuda {
namespace {

struct GroupedCase {
  std::vector<uint32_t> groups;  // rows of each expert
  uint32_t n, k;
  bool gather = true;
  size_t samples = 0;  // results to compare; 0: all
};

class GroupedGemmTest : public GpuTest {
 protected:
  static constexpr uint32_t kGuard = 5;  // rows after the results that must stay untouched

  void check_product(const GroupedCase& c) {
    const auto experts = static_cast<uint32_t>(c.groups.size());
    std::vector<uint32_t> offsets(1, 0);
    for (const uint32_t rows : c.groups) offsets.push_back(offsets.back() + rows);
    const uint32_t total = offsets.back();
    SCOPED_TRACE(testing::Message() << total << " rows of " << experts << " experts, n " << c.n << ", k " << c.k
                                    << (c.gather ? ", gathered" : ""));

    // Every second row of a gathered operand is NaN and must never be read.
    const uint32_t a_rows = c.gather ? 2 * (total / 2 + 1) : total;
    RandomValues<__nv_bfloat16> a(size_t{a_rows} * c.k, 1.0f, total + c.k);
    std::vector<uint32_t> source(total);
    test::Random random(c.n);
    for (uint32_t i = 0; i < total; ++i) {
      source[i] = c.gather ? 2 * static_cast<uint32_t>(random.below(total / 2 + 1)) : i;
    }
    if (c.gather) {
      for (uint32_t r = 1; r < a_rows; r += 2) {
        std::fill_n(a.typed.begin() + static_cast<ptrdiff_t>(size_t{r} * c.k), c.k, __float2bfloat16_rn(NAN));
      }
      a.device = upload(a.typed);
    }
    const RandomValues<__nv_bfloat16> w(size_t{experts} * c.n * c.k, 0.1f, experts + c.n);
    const auto device_source = upload(source);
    const auto device_offsets = upload(offsets);
    const DeviceArray<__nv_bfloat16> out(size_t{total + kGuard} * c.n, "test output");
    const auto found = run_twice<__nv_bfloat16>(out, [&] {
      grouped_gemm(a.device.data(), c.gather ? device_source.data() : nullptr, w.device.data(), device_offsets.data(),
                   experts, total, c.n, c.k, out.data(), how_);
    });
    for (size_t i = size_t{total} * c.n; i < found.size(); ++i) {
      ASSERT_TRUE(std::isnan(value_of(found[i]))) << "wrote beyond the results";
    }
    const size_t count = c.samples == 0 ? size_t{total} * c.n : c.samples;
    std::vector<uint8_t> wrong(count, 0);
    host_pool().parallel_for(count, 256, [&](size_t begin, size_t end, unsigned) {
      for (size_t s = begin; s < end; ++s) {
        const size_t i = c.samples == 0 ? s : test::Random(s).below(size_t{total} * c.n);
        wrong[s] = !is_right(value_of(found[i]), i, c, source, offsets, a.floats, w.floats);
      }
    });
    const auto failures = std::count(wrong.begin(), wrong.end(), uint8_t{1});
    EXPECT_EQ(failures, 0) << "of " << count << ", first at "
                           << std::find(wrong.begin(), wrong.end(), 1) - wrong.begin();
    // A sample says little about elements nothing wrote.
    for (size_t i = 0; i < size_t{total} * c.n; ++i) ASSERT_FALSE(std::isnan(value_of(found[i]))) << "element " << i;
  }

  static bool is_right(float found, size_t i, const GroupedCase& c, const std::vector<uint32_t>& source,
                       const std::vector<uint32_t>& offsets, const std::vector<float>& a, const std::vector<float>& w) {
    const size_t row = i / c.n, column = i % c.n;
    const auto after = std::upper_bound(offsets.begin(), offsets.end(), static_cast<uint32_t>(row));
    const auto expert = static_cast<size_t>(after - offsets.begin()) - 1;
    const float* x = &a[size_t{source[row]} * c.k];
    const float* y = &w[(expert * c.n + column) * c.k];
    const double wanted = dot_double(x, y, c.k);
    // Half a step of bf16, and the rounding of fp32 sums.
    const double allowed = std::abs(wanted) / 250.0 + 1e-5 * norm_double(x, c.k) * norm_double(y, c.k);
    return std::abs(double{found} - wanted) <= allowed;
  }
};

TEST_F(GroupedGemmTest, SmallGroups) {
  // The mean number of rows per group chooses the tile: below 17, below 96, more.
  check_product({{1}, 8, 8});
  check_product({{3, 0, 5, 1}, 40, 72});
  check_product({{0, 0, 33, 0}, 136, 64});
  check_product({{40, 1, 65, 0, 20}, 128, 192});
  check_product({{129, 70, 128}, 160, 136});
  check_product({{20, 30}, 24, 200, false});
}

TEST_F(GroupedGemmTest, SmallOddWidths) {
  for (const uint32_t n : {1u, 7u, 33u, 129u}) {
    check_product({{5, 2}, n, 40});
    check_product({{30, 40}, n, 40});
    check_product({{130, 100}, n, 40});
  }
}

TEST_F(GroupedGemmTest, EveryDepth) {
  for (const uint32_t k : {8u, 56u, 64u, 72u, 128u, 192u, 256u, 320u, 704u}) {
    check_product({{9, 12}, 136, k});
    check_product({{60, 33}, 136, k, false});
    check_product({{140, 100}, 136, k});
  }
}

TEST_F(GroupedGemmTest, EveryRowCount) {
  for (uint32_t rows = 1; rows <= 260; rows += rows < 40 ? 1 : 7) check_product({{rows, 3, rows / 2}, 72, 72});
}

// Most experts without a row, and one with all of them.
TEST_F(GroupedGemmTest, SkewedGroups) {
  std::vector<uint32_t> groups(128, 0);
  groups[127] = 700;
  check_product({groups, 96, 128});
  groups[0] = 3000;
  groups[64] = 1;
  check_product({groups, 200, 64});
  std::vector<uint32_t> first(256, 0);
  first[0] = 999;
  check_product({first, 64, 64});
}

TEST_F(GroupedGemmTest, OneGroupIsAPlainProduct) {
  check_product({{5000}, 300, 256, false, 200000});  // more row tiles than one band
  check_product({{77}, 300, 264, false});
  check_product({{17}, 300, 264, true});
}

TEST_F(GroupedGemmTest, RealShapes) {
  for (const uint32_t rows : {800u, 4096u, 16384u}) {  // 100, 512 and 2048 tokens with 8 experts each
    std::vector<uint32_t> groups(32, 0);               // a quarter of the experts, to keep the host's share small
    test::Random random(rows);
    for (uint32_t i = 0; i < rows / 4; ++i) ++groups[random.below(groups.size())];
    check_product({groups, 1408, 704, true, 20000});
    check_product({groups, 704, 1408, false, 20000});
  }
}

TEST_F(GroupedGemmTest, SmallBadShapesAreRefused) {
  const auto none = zeros<uint32_t>(2);
  const auto bad = [&](uint32_t experts, uint32_t k) {
    grouped_gemm(nullptr, nullptr, nullptr, none.data(), experts, 1, 8, k, nullptr, how_);
  };
  EXPECT_THROW(bad(1, 12), std::logic_error);
  EXPECT_THROW(bad(1, 0), std::logic_error);
  EXPECT_THROW(bad(0, 8), std::logic_error);
}

// No row at all: nothing to do, nothing written.
TEST_F(GroupedGemmTest, SmallNoRows) {
  const auto offsets = zeros<uint32_t>(5);
  const auto out = poisoned<__nv_bfloat16>(16);
  const RandomValues<__nv_bfloat16> values(256, 1.0f, 1);
  grouped_gemm(values.device.data(), nullptr, values.device.data(), offsets.data(), 4, 0, 8, 8, out.data(), how_);
  synchronise();
  for (const __nv_bfloat16 value : download(out)) EXPECT_TRUE(std::isnan(value_of(value)));
}

}  // namespace
}  // namespace carat::cuda
