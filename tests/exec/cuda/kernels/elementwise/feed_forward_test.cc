#include "exec/cuda/kernels/elementwise/feed_forward.h"

#include <string>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/ple/ple_fetch.h"
#include "exec/cuda/passes/ple_cache.h"
#include "exec/cuda/weights/packed_matrix.h"

namespace carat::cuda {
namespace {

class FeedForwardTest : public GpuTest {
 protected:
  // Rounded to bf16: half a step, and the error of tanhf near zero of the result.
  static void expect_bf16(const std::vector<__nv_bfloat16>& found, const std::vector<double>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(value_of(found[i]), wanted[i], std::abs(wanted[i]) / 250.0 + 4e-6) << "element " << i;
    }
  }

  void check_geglu(uint32_t rows, uint32_t F) {
    const RandomValues<__nv_bfloat16> gate_up(size_t{rows} * 2 * F, 2.0f, rows + F);
    const DeviceArray<__nv_bfloat16> out(size_t{rows} * F, "test output");
    const auto found = run_twice<__nv_bfloat16>(out, [&] { geglu(gate_up.device.data(), rows, F, out.data(), how_); });
    std::vector<double> wanted;
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < F; ++c) {
        wanted.push_back(gelu_double(gate_up.floats[r * 2 * F + c]) * double{gate_up.floats[r * 2 * F + F + c]});
      }
    }
    SCOPED_TRACE(testing::Message() << rows << " rows, F " << F);
    expect_bf16(found, wanted);
  }
};

TEST_F(FeedForwardTest, SmallGeglu) {
  for (const uint32_t F : {1u, 8u, 13u, 32u, 704u, 2049u}) check_geglu(3, F);
}

TEST_F(FeedForwardTest, GegluOfRealWidths) {
  for (const uint32_t F : {2112u, 10240u, 21504u}) check_geglu(33, F);
  check_geglu(70000, 32);  // rows of a sorted expert chunk can be more than a grid's second dimension
}

TEST_F(FeedForwardTest, SmallGeluTimes) {
  for (const uint32_t P : {1u, 64u, 256u, 300u}) {
    constexpr uint32_t kRows = 5;
    const uint32_t leading = 3 * P + 1;
    const RandomValues<__nv_bfloat16> gate(size_t{kRows} * P, 2.0f, P);
    const RandomValues<float> factors(size_t{kRows} * leading, 1.5f, P + 1);
    const DeviceArray<__nv_bfloat16> out(size_t{kRows} * P, "test output");
    const auto found = run_twice<__nv_bfloat16>(
        out, [&] { gelu_times(gate.device.data(), factors.device.data() + P, leading, kRows, P, out.data(), how_); });
    std::vector<double> wanted;
    for (size_t i = 0; i < found.size(); ++i) {
      wanted.push_back(gelu_double(gate.floats[i]) * double{factors.floats[i / P * leading + P + i % P]});
    }
    expect_bf16(found, wanted);
  }
}

class PleTest : public FeedForwardTest, public testing::WithParamInterface<quant::FormatInfo> {
 protected:
  template <typename T>
  void check_combine(uint32_t rows, uint32_t P, uint32_t layers, uint32_t slices) {
    constexpr uint32_t kVocabulary = 40;
    const PackedMatrix table(GetParam().format, kVocabulary, layers * P, P);
    const RandomValues<T> projection(size_t{rows} * slices * P, 20.0f, rows);
    const RandomValues<float> norm(P, 1.0f, 3);
    std::vector<int32_t> tokens(rows);
    for (uint32_t r = 0; r < rows; ++r) tokens[r] = static_cast<int32_t>((r * 7 + 39) % kVocabulary);
    const auto device_tokens = upload(tokens);
    const PleJob job{.table = table.view(),
                     .tokens = device_tokens.data(),
                     .norm = norm.device.data(),
                     .slices = slices,
                     .P = P,
                     .projection_scale = 0.05f,
                     .table_scale = std::sqrt(static_cast<float>(P)),
                     .eps = 1e-6f};
    const DeviceArray<float> out(projection.floats.size(), "test output");
    const auto found =
        run_twice<float>(out, [&] { combine_ple(job, projection.device.data(), rows, out.data(), how_); });
    std::vector<double> wanted;
    for (size_t s = 0; s < size_t{rows} * slices; ++s) {
      const float* from = &projection.floats[s * P];
      const float* embedding = table.row(static_cast<uint64_t>(tokens[s / slices])) + s % slices * P;
      const double scale = double{job.projection_scale};
      const double factor = scale / std::sqrt(dot_double(from, from, P) * scale * scale / P + 1e-6);
      for (uint32_t c = 0; c < P; ++c) {
        wanted.push_back((double{from[c]} * factor * double{norm.floats[c]} +
                          double{embedding[c]} * std::sqrt(static_cast<double>(P))) *
                         std::sqrt(0.5));
      }
    }
    SCOPED_TRACE(testing::Message() << rows << " rows, P " << P << ", " << slices << " of " << layers << " slices");
    const Difference off = difference(found, wanted);
    EXPECT_LT(off.relative, 1e-6);
    EXPECT_LT(off.largest, 1e-4);
  }
};

INSTANTIATE_TEST_SUITE_P(Packings, PleTest, testing::ValuesIn(one_format_per_packing()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST_P(PleTest, SmallCombine) {
  check_combine<float>(3, 64, 8, 8);
  check_combine<float>(2, 256, 3, 2);
  check_combine<__nv_bfloat16>(5, 64, 4, 3);
}

// Rows copied to other places of a cache give the same results as the table.
TEST_P(PleTest, SmallFetchedRows) {
  constexpr uint32_t kVocabulary = 40, kPlaces = 8, P = 64, kLayers = 12, kSlices = 7;  // rows of whole super-blocks
  const PackedMatrix table(GetParam().format, kVocabulary, kLayers * P, 5);
  const DeviceArray<unsigned char> memory(packed_matrix_bytes(table.view().packing, kPlaces, kLayers * P),
                                          "test cache");
  poison(memory);
  Carver carver(memory.data());
  const PackedView cache = carve_ple_rows(carver, table.view().packing, kLayers * P, kPlaces);
  ASSERT_EQ(carver.used(), memory.bytes());
  const std::vector<int32_t> tokens = {39, 0, 39, 17, 2}, places = {3, 7, 3, 0, 5};
  const auto fetches = upload(std::vector<PleFetch>{{39, 3}, {0, 7}, {-1, 0}, {17, 0}, {2, 5}});
  const auto device_tokens = upload(tokens), device_places = upload(places);
  const RandomValues<float> projection(tokens.size() * kSlices * P, 1.0f, 1), norm(P, 1.0f, 3);
  PleJob job{
      .table = table.view(), .tokens = device_tokens.data(), .norm = norm.device.data(), .slices = kSlices, .P = P};
  const auto rows = static_cast<uint32_t>(tokens.size());
  const DeviceArray<float> out(projection.floats.size(), "test output");
  const auto combine = [&] { combine_ple(job, projection.device.data(), rows, out.data(), how_); };
  const auto wanted = run_twice<float>(out, combine);
  fetch_ple_rows(table.view(), fetches.data(), rows, kSlices * P, cache, how_);
  job.table = cache;
  job.tokens = device_places.data();
  EXPECT_EQ(run_twice<float>(out, combine), wanted);
}

TEST_P(PleTest, RealShape) {
  check_combine<__nv_bfloat16>(100, 256, 42, 24);
  check_combine<float>(1, 256, 42, 42);
}

}  // namespace
}  // namespace carat::cuda
