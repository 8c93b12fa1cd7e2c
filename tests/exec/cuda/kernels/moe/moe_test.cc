#include "exec/cuda/kernels/moe/moe.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/gemv/host_activations.h"
#include "exec/cuda/weights/packed_matrix.h"

namespace carat::cuda {
namespace {

using quant::Format;

// --- routing ---------------------------------------------------------------------------------------------------------

class MoeRouteTest : public GpuTest {
 protected:
  void check_route(const std::vector<float>& logits, uint32_t rows, uint32_t experts, uint32_t used) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << used << " of " << experts << " experts");
    const RandomValues<float> scale(experts, 1.0f, experts);
    const auto device = upload(logits);
    const DeviceArray<uint32_t> ids(size_t{rows} * used, "test output");
    const DeviceArray<float> weights(ids.size(), "test output");
    const auto run = [&] {
      moe_route(device.data(), scale.device.data(), rows, experts, used, ids.data(), weights.data(), how_);
    };
    const auto found_ids = run_twice<uint32_t>(ids, run);
    const auto found_weights = run_twice<float>(weights, run);
    for (size_t r = 0; r < rows; ++r) {
      const float* row = &logits[r * experts];
      std::vector<uint32_t> order(experts);
      std::iota(order.begin(), order.end(), 0u);
      std::stable_sort(order.begin(), order.end(), [row](uint32_t a, uint32_t b) { return row[a] > row[b]; });
      double sum = 0.0;
      for (uint32_t s = 0; s < used; ++s) sum += std::exp(double{row[order[s]]} - double{row[order[0]]});
      for (uint32_t s = 0; s < used; ++s) {
        ASSERT_EQ(found_ids[r * used + s], order[s]) << "row " << r << " choice " << s;
        const double wanted =
            std::exp(double{row[order[s]]} - double{row[order[0]]}) / sum * double{scale.floats[order[s]]};
        ASSERT_NEAR(found_weights[r * used + s], wanted, 1e-5 * std::abs(wanted) + 1e-12) << "row " << r;
      }
    }
  }
};

TEST_F(MoeRouteTest, SmallCounts) {
  for (const auto& [experts, used] : {std::pair{1u, 1u}, {4u, 2u}, {31u, 5u}, {128u, 8u}, {256u, 16u}, {16u, 16u}}) {
    check_route(test::Random(experts).normals(size_t{7} * experts, 2.0f), 7, experts, used);
  }
}

TEST_F(MoeRouteTest, ManyRows) { check_route(test::Random(1).normals(size_t{2049} * 128, 3.0f), 2049, 128, 8); }

TEST_F(MoeRouteTest, SmallTiesGoToTheLowerExpert) {
  test::Random random(2);
  std::vector<float> logits(size_t{20} * 128);
  for (float& logit : logits) logit = static_cast<float>(random.below(6));
  std::fill_n(logits.begin(), 128, -3.0f);  // a row of equals
  check_route(logits, 20, 128, 8);
}

TEST_F(MoeRouteTest, SmallNaNStaysVisible) {
  const auto logits = upload(std::vector<float>(128, NAN));
  const auto scale = upload(std::vector<float>(128, 1.0f));
  const auto ids = poisoned<uint32_t>(8);
  const auto weights = zeros<float>(8);
  moe_route(logits.data(), scale.data(), 1, 128, 8, ids.data(), weights.data(), how_);
  synchronise();
  for (const uint32_t id : download(ids)) EXPECT_LT(id, 128u);
  for (const float weight : download(weights)) EXPECT_TRUE(std::isnan(weight));
}

// --- sorting and combining -------------------------------------------------------------------------------------------

class MoeSortTest : public GpuTest {
 protected:
  void check_sort(const std::vector<uint32_t>& ids, uint32_t used, uint32_t experts) {
    const auto rows = static_cast<uint32_t>(ids.size() / used);
    SCOPED_TRACE(testing::Message() << rows << " rows, " << used << " of " << experts << " experts");
    std::vector<uint32_t> offsets(experts + 1, 0), source, place(ids.size());
    for (uint32_t e = 0; e < experts; ++e) {
      offsets[e] = static_cast<uint32_t>(source.size());
      for (uint32_t i = 0; i < ids.size(); ++i) {
        if (ids[i] != e) continue;
        place[i] = static_cast<uint32_t>(source.size());
        source.push_back(i / used);
      }
    }
    offsets[experts] = static_cast<uint32_t>(source.size());

    const auto device_ids = upload(ids);
    const auto found_offsets = poisoned<uint32_t>(experts + 1);
    const auto found_source = poisoned<uint32_t>(ids.size());
    const DeviceArray<uint32_t> out(ids.size(), "test output");
    const auto found_place = run_twice<uint32_t>(out, [&] {
      moe_sort(device_ids.data(), rows, used, experts, found_offsets.data(), found_source.data(), out.data(), how_);
    });
    EXPECT_EQ(download(found_offsets), offsets);
    EXPECT_EQ(download(found_source), source);
    EXPECT_EQ(found_place, place);
  }

  // `used` different experts a row, drawn from the first `drawn` ones.
  static std::vector<uint32_t> random_ids(uint32_t rows, uint32_t used, uint32_t drawn, uint64_t seed) {
    test::Random random(seed);
    std::vector<uint32_t> ids;
    for (uint32_t r = 0; r < rows; ++r) {
      std::vector<uint32_t> all(drawn);
      std::iota(all.begin(), all.end(), 0u);
      for (uint32_t s = 0; s < used; ++s) {
        std::swap(all[s], all[s + random.below(drawn - s)]);
        ids.push_back(all[s]);
      }
    }
    return ids;
  }
};

TEST_F(MoeSortTest, SmallSorts) {
  for (const uint32_t rows : {1u, 3u, 33u, 100u}) {
    check_sort(random_ids(rows, 8, 128, rows), 8, 128);
    check_sort(random_ids(rows, 2, 4, rows), 2, 4);
    check_sort(random_ids(rows, 1, 1, rows), 1, 1);
    check_sort(random_ids(rows, 4, 5, rows), 4, 256);  // most experts get nothing
  }
}

TEST_F(MoeSortTest, PromptChunks) {
  check_sort(random_ids(2048, 8, 128, 1), 8, 128);
  check_sort(random_ids(4097, 8, 128, 2), 8, 128);
}

TEST_F(MoeSortTest, SmallCombine) {
  struct Case {
    uint32_t d, used;
  };
  for (const Case& c : {Case{32, 8}, Case{296, 3}, Case{296, 1}, Case{64, 16}, Case{64, 9}, Case{2816, 8}}) {
    const uint32_t d = c.d, used = c.used;
    constexpr uint32_t kRows = 9;
    const RandomValues<__nv_bfloat16> sorted(size_t{kRows} * used * d, 1.0f, d);
    const RandomValues<float> weights(size_t{kRows} * used, 0.3f, d + 1);
    std::vector<uint32_t> place(kRows * used);
    std::iota(place.begin(), place.end(), 0u);
    test::Random random(d);
    for (size_t i = place.size(); i > 1; --i) std::swap(place[i - 1], place[random.below(i)]);
    const auto device_place = upload(place);
    const DeviceArray<__nv_bfloat16> out(size_t{kRows} * d, "test output");
    const auto found = run_twice<__nv_bfloat16>(out, [&] {
      moe_combine(sorted.device.data(), device_place.data(), weights.device.data(), kRows, used, d, out.data(), how_);
    });
    for (size_t i = 0; i < found.size(); ++i) {
      double wanted = 0.0;
      for (size_t s = 0; s < used; ++s) {
        const size_t pair = i / d * used + s;
        wanted += double{weights.floats[pair]} * double{sorted.floats[place[pair] * d + i % d]};
      }
      ASSERT_NEAR(value_of(found[i]), wanted, std::abs(wanted) / 250.0 + 1e-6) << "element " << i;
    }
  }
}

// --- the expert products of decode -----------------------------------------------------------------------------------

struct ExpertShape {
  uint32_t d, F, experts, used, rows;
};

class MoeDecodeTest : public GpuTest {
 protected:
  static constexpr ExpertShape kSmall{256, 96, 5, 3, 3};
  static constexpr ExpertShape kReal{2816, 704, 16, 8, 2};

  static std::vector<uint32_t> random_ids(const ExpertShape& shape) {
    test::Random random(shape.d);
    std::vector<uint32_t> ids(size_t{shape.rows} * shape.used);
    for (uint32_t& id : ids) id = static_cast<uint32_t>(random.below(shape.experts));
    return ids;
  }

  // Rows [first, first + count) of a matrix with the given activation row.
  static Expected product(const PackedMatrix& matrix, uint64_t first, uint32_t count, const HostQuantised& x,
                          uint32_t row) {
    const std::vector<float> weights(matrix.row(first), matrix.row(first + count));
    HostQuantised one = x;
    const auto take = [&](auto& values, size_t width) {
      const auto begin = values.begin() + static_cast<ptrdiff_t>(row * width);
      values = {begin, begin + static_cast<ptrdiff_t>(width)};
    };
    one.rows = 1;
    take(one.q, x.width());
    take(one.values, x.width());
    take(one.scales, x.width() / HostQuantised::kScaleColumns);
    return product_reference(weights, count, one, is_float_packing(matrix.view().packing));
  }

  static HostQuantised random_activations(uint32_t rows, uint32_t cols, uint64_t seed) {
    return quantise_host(test::Random(seed).normals(size_t{rows} * cols), rows, cols);
  }

  // fused: gate and up rows of an expert in one tensor, as some files have them.
  void check_gate_up(const ExpertShape& shape, Format format, bool fused) {
    SCOPED_TRACE(testing::Message() << quant::info(format).name << ", F " << shape.F << ", fused " << fused);
    const uint32_t F = shape.F, tensor_rows = shape.experts * F * (fused ? 2 : 1);
    const PackedMatrix first(format, tensor_rows, shape.d, 1);
    const PackedMatrix second(format, fused ? 1 : tensor_rows, shape.d, 2);
    const ExpertRows gate{first.view(), fused ? 2 * F : F, 0};
    const ExpertRows up{fused ? first.view() : second.view(), fused ? 2 * F : F, fused ? F : 0};
    const HostQuantised x = random_activations(shape.rows, shape.d, 3);
    const DeviceQuantised device_x = upload_quantised(x);
    const std::vector<uint32_t> ids = random_ids(shape);
    const auto device_ids = upload(ids);
    Expected expected;
    for (uint32_t i = 0; i < ids.size(); ++i) {
      const uint32_t row = i / shape.used;
      const Expected g = product(first, uint64_t{ids[i]} * gate.stride, F, x, row);
      const Expected u = product(fused ? first : second, uint64_t{ids[i]} * up.stride + up.offset, F, x, row);
      const Expected one = geglu_reference(g, u);
      expected.values.insert(expected.values.end(), one.values.begin(), one.values.end());
      expected.allowance.insert(expected.allowance.end(), one.allowance.begin(), one.allowance.end());
    }
    for (const bool with_values : {true, false}) {
      const DeviceQuantised acts = unwritten_quantised(static_cast<uint32_t>(ids.size()), F);
      moe_gate_up(gate, up, F, device_x.view(true), device_ids.data(), shape.rows, shape.used, acts.view(with_values),
                  how_);
      synchronise();
      expect_quantised(download_quantised(acts, with_values), expected, with_values, "expert activations");
    }
  }

  void check_down(const ExpertShape& shape, Format format) {
    SCOPED_TRACE(testing::Message() << quant::info(format).name << ", F " << shape.F << ", d " << shape.d);
    const PackedMatrix down(format, shape.experts * shape.d, shape.F, 4);
    const std::vector<uint32_t> ids = random_ids(shape);
    const auto device_ids = upload(ids);
    const HostQuantised acts = random_activations(static_cast<uint32_t>(ids.size()), shape.F, 5);
    const DeviceQuantised device_acts = upload_quantised(acts);
    const RandomValues<float> weights(ids.size(), 0.3f, 6);
    const size_t count = size_t{shape.rows} * shape.d;
    Expected expected{std::vector<double>(count, 0.0), std::vector<double>(count, 1e-7)};
    for (uint32_t i = 0; i < ids.size(); ++i) {
      const Expected one = product(down, uint64_t{ids[i]} * shape.d, shape.d, acts, i);
      for (size_t c = 0; c < shape.d; ++c) {
        const size_t at = i / shape.used * shape.d + c;
        expected.values[at] += double{weights.floats[i]} * one.values[c];
        expected.allowance[at] += std::abs(double{weights.floats[i]}) * one.allowance[c];
      }
    }
    const DeviceArray<float> out(count, "test output");
    const auto found = run_twice<float>(out, [&] {
      moe_down(down.view(), shape.d, device_acts.view(true), device_ids.data(), weights.device.data(), shape.rows,
               shape.used, out.data(), how_);
    });
    expect_within(found, shape.d, expected, shape.d, "expert outputs");
  }
};

class MoeDecodeFormatTest : public MoeDecodeTest, public testing::WithParamInterface<quant::FormatInfo> {};

INSTANTIATE_TEST_SUITE_P(Packings, MoeDecodeFormatTest, testing::ValuesIn(one_format_per_packing()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST_P(MoeDecodeFormatTest, SmallGateUp) {
  check_gate_up(kSmall, GetParam().format, false);
  check_gate_up(kSmall, GetParam().format, true);
}

TEST_P(MoeDecodeFormatTest, SmallDown) {
  for (const uint32_t F : {32u, 128u, 256u, 704u}) {
    if (F % GetParam().block != 0) continue;
    ExpertShape shape = kSmall;
    shape.F = F;
    shape.d = 70;
    check_down(shape, GetParam().format);
  }
}

TEST_F(MoeDecodeTest, SmallWidths) {
  for (const uint32_t F : {32u, 128u, 704u}) {
    ExpertShape shape = kSmall;
    shape.F = F;
    check_gate_up(shape, Format::kQ4_0, true);
  }
}

// The formats llama.cpp's recipes leave in expert tensors, whose width 704 K-quants cannot have.
TEST_F(MoeDecodeTest, RealShape) {
  check_gate_up(kReal, Format::kQ4_0, true);
  check_gate_up(kReal, Format::kQ4_K, false);
  for (const Format format : {Format::kQ4_0, Format::kQ5_0, Format::kQ8_0, Format::kQ5_1, Format::kIQ4_NL}) {
    check_down(kReal, format);
  }
}

}  // namespace
}  // namespace carat::cuda
