#include "exec/cuda/kernels/select/select.h"

#include <algorithm>
#include <numeric>

#include "exec/cuda/device/gpu_fixture.h"

namespace carat::cuda {
namespace {

class SelectTest : public GpuTest {
 protected:
  struct Found {
    std::vector<int32_t> tokens;
    std::vector<float> values;
    std::vector<uint32_t> counts;
  };

  void prepare(uint32_t rows) {
    maxima_ = poisoned<float>(size_t{rows} * kSelectGroups);
    counters_ = zeros<uint32_t>(rows);
  }

  Found select(const DeviceArray<float>& logits, uint32_t rows, uint32_t V, uint32_t k) {
    const auto device_k = upload(std::vector<uint32_t>{k});
    const auto tokens = poisoned<int32_t>(size_t{rows} * kSelectMax);
    const auto values = poisoned<float>(size_t{rows} * kSelectMax);
    const auto counts = poisoned<uint32_t>(rows);
    const SelectScratch scratch{maxima_.data(), counters_.data()};
    select_best(logits.data(), rows, V, device_k.data(), scratch, tokens.data(), values.data(), counts.data(), how_);
    synchronise();
    // The next selection relies on this.
    EXPECT_EQ(std::ranges::count(download(counters_), 0u), static_cast<ptrdiff_t>(counters_.size()));
    return {download(tokens), download(values), download(counts)};
  }

  static std::vector<int32_t> best(const float* row, uint32_t V, uint32_t k) {
    std::vector<int32_t> order(V);
    std::iota(order.begin(), order.end(), 0);
    const auto middle = order.begin() + static_cast<ptrdiff_t>(std::min(k, V));
    std::partial_sort(order.begin(), middle, order.end(),
                      [row](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
    order.erase(middle, order.end());
    return order;
  }

  // Selects twice over the same scratch.
  void check_select(const std::vector<float>& logits, uint32_t rows, uint32_t V, uint32_t k) {
    SCOPED_TRACE(testing::Message() << rows << " rows, V " << V << ", k " << k);
    const auto device = upload(logits);
    for (int run = 0; run < 2; ++run) {
      const Found found = select(device, rows, V, k);
      for (size_t r = 0; r < rows; ++r) {
        const float* row = &logits[r * V];
        const std::vector<int32_t> wanted = best(row, V, std::min(k, kSelectMax));
        ASSERT_EQ(found.counts[r], wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_EQ(found.tokens[r * kSelectMax + i], wanted[i]) << "row " << r << " place " << i;
          ASSERT_EQ(found.values[r * kSelectMax + i], row[wanted[i]]) << "row " << r << " place " << i;
        }
      }
    }
  }

  DeviceArray<float> maxima_;
  DeviceArray<uint32_t> counters_;
};

TEST_F(SelectTest, SmallVocabularies) {
  prepare(3);
  for (const uint32_t V : {1u, 2u, 31u, 1000u, 8192u, 8193u}) {
    const std::vector<float> logits = test::Random(V).normals(size_t{3} * V, 5.0f);
    for (const uint32_t k : {1u, 2u, 40u, 1024u}) check_select(logits, 3, V, k);
  }
}

TEST_F(SelectTest, RealVocabulary) {
  constexpr uint32_t kV = 262144, kRows = 4;
  prepare(kRows);
  const std::vector<float> logits = test::Random(7).normals(size_t{kRows} * kV, 4.0f);
  for (const uint32_t k : {1u, 3u, 64u, 1000u, 1024u}) check_select(logits, kRows, kV, k);
}

// Groups of 8 to 64 logits, rows that are no multiple of a vector, and groups of more than one tile.
TEST_F(SelectTest, GroupsOfEverySize) {
  prepare(2);
  for (const uint32_t V : {12001u, 32000u, 65537u, 131072u, 262147u, 600000u}) {
    const std::vector<float> logits = test::Random(V).normals(size_t{2} * V, 3.0f);
    for (const uint32_t k : {1u, 64u, 1024u}) check_select(logits, 2, V, k);
  }
}

// Many rows: each block takes several tiles of a warp.
TEST_F(SelectTest, BatchesOfRows) {
  constexpr uint32_t kV = 262144;
  for (const uint32_t rows : {16u, 64u}) {
    prepare(rows);
    const std::vector<float> logits = test::Random(rows).normals(size_t{rows} * kV, 4.0f);
    check_select(logits, rows, kV, 40);
  }
}

// The best stand side by side, so that few groups hold them all and the bound is far below the k-th.
TEST_F(SelectTest, TheBestAreNeighbours) {
  constexpr uint32_t kV = 262144;
  prepare(1);
  std::vector<float> logits = test::Random(12).normals(kV);
  for (uint32_t i = 0; i < 700; ++i) logits[1000 + i] = 20.0f + 0.001f * static_cast<float>(i * 37 % 700);
  for (const uint32_t k : {1u, 64u, 600u, 900u}) check_select(logits, 1, kV, k);
}

// One far above the rest leaves all others in few bins of the histogram.
TEST_F(SelectTest, OneFarAboveTheRest) {
  constexpr uint32_t kV = 100000;
  prepare(1);
  std::vector<float> logits = test::Random(13).normals(kV);
  logits[777] = 300.0f;
  for (const uint32_t k : {1u, 2u, 64u}) check_select(logits, 1, kV, k);
}

TEST_F(SelectTest, SmallMoreThanTheMostIsCutToTheMost) {
  prepare(1);
  check_select(test::Random(8).normals(5000), 1, 5000, 100000);
}

TEST_F(SelectTest, SmallNegativeValuesAndTies) {
  prepare(2);
  constexpr uint32_t kV = 3000;
  std::vector<float> logits(2 * kV);
  test::Random random(9);
  for (float& value : logits) value = -1.0f - static_cast<float>(random.below(7)) * 0.5f;  // seven different values
  for (const uint32_t k : {1u, 5u, 500u, 1024u}) check_select(logits, 2, kV, k);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = i % 2 == 0 ? 0.0f : 1e-30f;
  check_select(logits, 2, kV, 9);
}

TEST_F(SelectTest, SmallInfinitiesAndSubnormals) {
  prepare(1);
  std::vector<float> logits = test::Random(10).normals(300);
  logits[17] = INFINITY;
  logits[18] = -INFINITY;
  logits[200] = 1e-42f;
  logits[201] = -1e-42f;
  check_select(logits, 1, 300, 300);
}

// So many equal logits that they do not fit the collection: said, not guessed; and the scratch is ready for the next.
TEST_F(SelectTest, SmallTooManyEqualLogitsOverflow) {
  constexpr uint32_t kV = kSelectCapacity + 1;
  prepare(2);
  std::vector<float> logits(2 * kV, 1.0f);
  const std::vector<float> ordinary = test::Random(11).normals(kV);
  std::copy(ordinary.begin(), ordinary.end(), logits.begin() + kV);
  const auto device = upload(logits);
  for (int run = 0; run < 3; ++run) {
    const Found found = select(device, 2, kV, 5);
    EXPECT_EQ(found.counts[0], kSelectOverflow);
    EXPECT_EQ(found.counts[1], 5u);
    EXPECT_EQ(found.tokens[kSelectMax], best(ordinary.data(), kV, 1)[0]);
  }
  check_select(ordinary, 1, kV, 10);
  check_select(std::vector<float>(kSelectCapacity, 2.0f), 1, kSelectCapacity, 100);
}

TEST_F(SelectTest, SmallPickLogits) {
  const RandomValues<float> logits(1000, 1.0f, 12);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 300; ++i) tokens.push_back(i * 7 % 1000);
  const auto device_tokens = upload(tokens);
  const DeviceArray<float> out(tokens.size(), "test output");
  const auto found = run_twice<float>(out, [&] {
    pick_logits(logits.device.data(), device_tokens.data(), static_cast<uint32_t>(tokens.size()), out.data(), how_);
  });
  for (size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(found[i], logits.floats[static_cast<size_t>(tokens[i])]);
}

TEST_F(SelectTest, SmallSoftcap) {
  for (const float cap : {30.0f, 0.0f}) {
    const std::vector<float> logits = test::Random(13).normals(1001, 40.0f);
    const auto device = upload(logits);
    const auto non_finite = zeros<uint32_t>(1);
    softcap(device.data(), 1, 1001, cap, non_finite.data(), how_);
    synchronise();
    const auto found = download(device);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double wanted = cap > 0.0f ? double{cap} * std::tanh(double{logits[i]} / double{cap}) : double{logits[i]};
      ASSERT_NEAR(found[i], wanted, cap > 0.0f ? 1e-5 : 0.0);
    }
    EXPECT_EQ(download(non_finite)[0], 0u);
  }
}

// In one launch what softcap() and select_best() do in two.
TEST_F(SelectTest, SoftcapAndSelect) {
  constexpr uint32_t kRows = 3, kCount = 20;
  prepare(kRows);
  for (const uint32_t V : {1000u, 4099u, 262144u}) {
    for (const float cap : {30.0f, 0.0f}) {
      const auto separate = upload(test::Random(V).normals(size_t{kRows} * V, 40.0f));
      const auto together = upload(download(separate));
      const auto non_finite = zeros<uint32_t>(kRows);
      softcap(separate.data(), kRows, V, cap, non_finite.data(), how_);
      const Found wanted = select(separate, kRows, V, kCount);
      const auto k = upload(std::vector<uint32_t>{kCount});
      const auto tokens = poisoned<int32_t>(size_t{kRows} * kSelectMax);
      const auto values = poisoned<float>(size_t{kRows} * kSelectMax);
      const auto counts = poisoned<uint32_t>(kRows);
      softcap_and_select(together.data(), cap, non_finite.data(), kRows, V, k.data(),
                         {maxima_.data(), counters_.data()}, tokens.data(), values.data(), counts.data(), how_);
      synchronise();
      EXPECT_EQ(download(together), download(separate)) << "V " << V << ", cap " << cap;
      EXPECT_EQ(download(non_finite), std::vector<uint32_t>(kRows, 0u));
      const auto found_tokens = download(tokens);
      const auto found_values = download(values);
      for (size_t r = 0; r < kRows; ++r) {
        EXPECT_EQ(download(counts)[r], kCount);
        for (size_t i = r * kSelectMax; i < r * kSelectMax + kCount; ++i) {
          ASSERT_EQ(found_tokens[i], wanted.tokens[i]);
          ASSERT_EQ(found_values[i], wanted.values[i]);
        }
      }
    }
  }
}

// Each row has a flag of its own.
TEST_F(SelectTest, SmallSoftcapAndSelectReportsNonFiniteLogits) {
  constexpr uint32_t kRows = 3, kV = 701;
  prepare(kRows);
  std::vector<float> logits(kRows * kV, 1.0f);
  logits[2 * kV - 1] = NAN;  // the last of row 1
  const auto device = upload(logits);
  const auto non_finite = zeros<uint32_t>(kRows);
  const auto k = upload(std::vector<uint32_t>{1});
  const auto tokens = poisoned<int32_t>(kRows * kSelectMax);
  const auto values = poisoned<float>(kRows * kSelectMax);
  const auto counts = poisoned<uint32_t>(kRows);
  softcap_and_select(device.data(), 30.0f, non_finite.data(), kRows, kV, k.data(), {maxima_.data(), counters_.data()},
                     tokens.data(), values.data(), counts.data(), how_);
  synchronise();
  EXPECT_EQ(download(non_finite), (std::vector<uint32_t>{0, 1, 0}));
}

TEST_F(SelectTest, SmallSoftcapReportsNonFiniteLogits) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const float cap : {30.0f, 0.0f}) {
      std::vector<float> logits(3 * 700, 1.0f);
      logits[2 * 700 - 1] = bad;  // the last of row 1
      const auto device = upload(logits);
      const auto non_finite = zeros<uint32_t>(3);
      softcap(device.data(), 3, 700, cap, non_finite.data(), how_);
      synchronise();
      EXPECT_EQ(download(non_finite), (std::vector<uint32_t>{0, 1, 0})) << bad << ", cap " << cap;
    }
  }
}

}  // namespace
}  // namespace carat::cuda
