#include "exec/cuda/kernels/elementwise/rope.h"

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/kv_rounding.h"

namespace carat::cuda {
namespace {

class RopeTest : public GpuTest {};

std::vector<double> inverse_frequencies(uint32_t pairs, uint32_t hd, double theta, double divisor) {
  std::vector<double> frequencies(pairs);
  for (uint32_t j = 0; j < pairs; ++j) frequencies[j] = std::pow(theta, -2.0 * j / hd) / divisor;
  return frequencies;
}

TEST_F(RopeTest, SmallTable) {
  const std::vector<uint32_t> positions = {0, 1, 2, 511, 512, 4095, 32768, 131071, 200003, 262143};
  const auto device_positions = upload(positions);
  const auto rows = static_cast<uint32_t>(positions.size());
  struct Kind {
    uint32_t pairs, hd;
    double theta, divisor;
  };
  for (const Kind& kind :
       {Kind{128, 256, 1e4, 1.0}, Kind{64, 512, 1e6, 1.0}, Kind{256, 512, 1e6, 8.0}, Kind{3, 16, 1e4, 1.0}}) {
    const std::vector<double> frequencies = inverse_frequencies(kind.pairs, kind.hd, kind.theta, kind.divisor);
    const auto device_frequencies = upload(frequencies);
    const DeviceArray<float2> table(size_t{rows} * kind.pairs, "test output");
    const auto found = run_twice<float2>(table, [&] {
      rope_table(device_positions.data(), rows, device_frequencies.data(), kind.pairs, table.data(), how_);
    });
    for (size_t i = 0; i < found.size(); ++i) {
      const long double angle =
          static_cast<long double>(positions[i / kind.pairs]) * static_cast<long double>(frequencies[i % kind.pairs]);
      // Half a unit in the last place of an angle near pi, and the error of sincosf.
      ASSERT_NEAR(found[i].x, static_cast<double>(std::cos(angle)), 4e-7) << "position " << positions[i / kind.pairs];
      ASSERT_NEAR(found[i].y, static_cast<double>(std::sin(angle)), 4e-7) << "position " << positions[i / kind.pairs];
    }
  }
}

struct PostCase {
  AttentionShape shape;
  uint32_t pairs;  // that rotate
  uint32_t rows;
  bool v_from_k = false, only_q = false, only_kv = false;
};

// One layer's projections, and what queries and cache must hold after them.
template <typename T>
class PostProblem {
 public:
  static constexpr uint32_t kCells = 64, kSequences = 3;

  explicit PostProblem(const PostCase& c)
      : c_(c),
        source_heads_((c.only_kv ? 0 : c.shape.H) + (c.only_q ? 0 : (c.v_from_k ? 1 : 2) * c.shape.Hkv)),
        projections_(size_t{c.rows} * source_heads_ * c.shape.hd, 3.0f, c.rows + c.shape.hd),
        q_norm_(c.shape.hd, 1.0f, 2),
        k_norm_(c.shape.hd, 1.0f, 3) {
    test::Random random(4);
    for (uint32_t r = 0; r < c.rows; ++r) {
      // Positions far enough apart to wrap the ring many times; no two rows share a cell of a sequence.
      sequences_.push_back(r % kSequences);
      positions_.push_back(kCells * static_cast<uint32_t>(random.below(3000)) + r / kSequences);
    }
    for (size_t i = 0; i < size_t{c.rows} * c.pairs; ++i) {
      const float angle = random.uniform(-3.0f, 3.0f);
      table_.push_back(make_float2(std::cos(angle), std::sin(angle)));
    }
    device_positions_ = upload(positions_);
    device_sequences_ = upload(sequences_);
    device_table_ = upload(table_);
    q = DeviceArray<__half>(size_t{c.rows} * c.shape.H * c.shape.hd, "test output");
    k = DeviceArray<__half>(size_t{kSequences} * c.shape.Hkv * kCells * c.shape.hd, "test output");
    v = DeviceArray<__half>(k.size(), "test output");
  }

  QkvPost job() const {
    QkvPost job;
    job.shape = c_.shape;
    job.v_from_k = c_.v_from_k;
    job.only_q = c_.only_q;
    job.only_kv = c_.only_kv;
    job.q_norm = q_norm_.device.data();
    job.k_norm = k_norm_.device.data();
    job.table = device_table_.data();
    job.pairs = c_.pairs;
    job.positions = device_positions_.data();
    job.sequences = device_sequences_.data();
    job.q = q.data();
    job.kv = {k.data(), v.data(), kCells};
    return job;
  }
  const T* projections() const { return projections_.device.data(); }

  // Head `head` of row r after norm (with weights unless null) and rotation.
  std::vector<double> expected(uint32_t r, uint32_t source_head, const float* weights) const {
    const uint32_t hd = c_.shape.hd, half = hd / 2;
    const float* from = &projections_.floats[(size_t{r} * source_heads_ + source_head) * hd];
    const double factor = 1.0 / std::sqrt(dot_double(from, from, hd) / hd + 1e-6);
    std::vector<double> out(hd);
    for (uint32_t i = 0; i < hd; ++i)
      out[i] = double{from[i]} * factor * (weights == nullptr ? 1.0 : double{weights[i]});
    if (weights == nullptr) return out;
    for (uint32_t j = 0; j < c_.pairs; ++j) {
      const float2 turn = table_[size_t{r} * c_.pairs + j];
      const double low = out[j], high = out[j + half];
      out[j] = low * double{turn.x} - high * double{turn.y};
      out[j + half] = low * double{turn.y} + high * double{turn.x};
    }
    return out;
  }

  // Compares every element of q, k and v: those no row belongs to must be untouched (NaN).
  void check(const std::vector<__half>& q_found, const std::vector<__half>& k_found,
             const std::vector<__half>& v_found) const {
    const uint32_t hd = c_.shape.hd, H = c_.only_kv ? 0 : c_.shape.H, Hkv = c_.shape.Hkv;
    std::vector<double> q_wanted(q_found.size(), NAN), k_wanted(k_found.size(), NAN), v_wanted(v_found.size(), NAN);
    const auto put = [hd](std::vector<double>& to, size_t head, const std::vector<double>& values) {
      std::copy(values.begin(), values.end(), to.begin() + static_cast<ptrdiff_t>(head * hd));
    };
    for (uint32_t r = 0; r < c_.rows; ++r) {
      for (uint32_t h = 0; h < H; ++h) put(q_wanted, size_t{r} * H + h, expected(r, h, q_norm_.floats.data()));
      for (uint32_t h = 0; h < Hkv && !c_.only_q; ++h) {
        const size_t cell = (size_t{sequences_[r]} * Hkv + h) * kCells + positions_[r] % kCells;
        put(k_wanted, cell, expected(r, H + h, k_norm_.floats.data()));
        put(v_wanted, cell, expected(r, H + (c_.v_from_k ? 0 : Hkv) + h, nullptr));
      }
    }
    expect_halves(q_found, q_wanted, "q");
    expect_halves(k_found, k_wanted, "k");
    expect_halves(v_found, v_wanted, "v");
  }

  DeviceArray<__half> q, k, v;

 private:
  static void expect_halves(const std::vector<__half>& found, const std::vector<double>& wanted, const char* what) {
    size_t failures = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const double value = value_of(found[i]);
      const bool good = std::isnan(wanted[i]) ? std::isnan(value)
                                              : std::abs(value - wanted[i]) <= std::abs(wanted[i]) / 2000.0 + 1e-5;
      if (!good && ++failures == 1) ADD_FAILURE() << what << "[" << i << "] is " << value << ", expected " << wanted[i];
    }
    EXPECT_EQ(failures, 0u) << what;
  }

  PostCase c_;
  uint32_t source_heads_;
  RandomValues<T> projections_;
  RandomValues<float> q_norm_, k_norm_;
  std::vector<uint32_t> positions_, sequences_;
  std::vector<float2> table_;
  DeviceArray<uint32_t> device_positions_, device_sequences_;
  DeviceArray<float2> device_table_;
};

class QkvPostTest : public GpuTest {
 protected:
  template <typename T>
  void check_case(const PostCase& c) {
    SCOPED_TRACE(testing::Message() << "H " << c.shape.H << " Hkv " << c.shape.Hkv << " hd " << c.shape.hd << " rows "
                                    << c.rows << " v_from_k " << c.v_from_k << " only_q " << c.only_q << " only_kv "
                                    << c.only_kv);
    const PostProblem<T> problem(c);
    poison(problem.k);
    poison(problem.v);
    const auto q = run_twice<__half>(problem.q, [&] { qkv_post(problem.job(), problem.projections(), c.rows, how_); });
    problem.check(q, download(problem.k), download(problem.v));
  }
  void check_quantised(const PostCase& c) {
    const PostProblem<float> problem(c);
    poison(problem.k);
    poison(problem.v);
    qkv_post(problem.job(), problem.projections(), c.rows, how_);
    synchronise();
    const std::vector<__half> q = download(problem.q);

    const uint32_t columns = kv_scale_columns(c.shape.hd);
    const size_t rows = problem.k.size() / c.shape.hd;
    QkvPost job = problem.job();
    const DeviceArray<int8_t> k_quants = poisoned<int8_t>(problem.k.size()),
                              v_quants = poisoned<int8_t>(k_quants.size());
    const DeviceArray<__half> k_scales = poisoned<__half>(rows * columns), v_scales = poisoned<__half>(rows * columns);
    job.kv = {.cells = problem.kCells,
              .k_quants = k_quants.data(),
              .v_quants = v_quants.data(),
              .k_scales = k_scales.data(),
              .v_scales = v_scales.data()};
    const auto again = run_twice<__half>(problem.q, [&] { qkv_post(job, problem.projections(), c.rows, how_); });
    if (!c.only_kv) {
      EXPECT_EQ(std::memcmp(again.data(), q.data(), q.size() * sizeof(__half)), 0) << "queries stay fp16";
    }
    expect_rounded(download(problem.k), download(k_quants), download(k_scales), c.shape.hd, "k");
    expect_rounded(download(problem.v), download(v_quants), download(v_scales), c.shape.hd, "v");
  }

  // halves: the same rows in an fp16 cache; cells that no row belongs to are NaN there and untouched here.
  static void expect_rounded(const std::vector<__half>& halves, const std::vector<int8_t>& quants,
                             const std::vector<__half>& scales, uint32_t hd, const char* what) {
    size_t written = 0, moved = 0;
    for (size_t block = 0; block < halves.size() / kKvScaleBlock; ++block) {
      const size_t per_row = hd / kKvScaleBlock;
      const double scale = value_of(scales[block / per_row * kv_scale_columns(hd) + block % per_row]);
      std::vector<float> values(kKvScaleBlock);
      for (uint32_t i = 0; i < kKvScaleBlock; ++i) {
        values[i] = static_cast<float>(value_of(halves[block * kKvScaleBlock + i]));
      }
      const int8_t* levels = &quants[block * kKvScaleBlock];
      if (std::isnan(values[0])) {
        ASSERT_TRUE(std::isnan(scale)) << what << " block " << block;
        for (uint32_t i = 0; i < kKvScaleBlock; ++i) ASSERT_EQ(levels[i], -1) << what << " block " << block;
        continue;
      }
      ++written;
      const quant::BlockQ8_0 expected = exec::round_q8_0(values.data());
      ASSERT_NEAR(scale, half_to_float(expected.d), half_to_float(expected.d) / 900.0) << what << " block " << block;
      for (uint32_t i = 0; i < kKvScaleBlock; ++i) {
        ASSERT_LE(std::abs(levels[i] - expected.quants[i]), 1) << what << " block " << block << " value " << i;
        moved += levels[i] != expected.quants[i];
      }
    }
    EXPECT_GT(written, 0u);
    EXPECT_LT(moved, written * kKvScaleBlock / 20) << what << ": levels that differ because fp16 came between";
  }

  void check_both(const PostCase& c) {
    check_case<float>(c);
    check_case<__nv_bfloat16>(c);
  }
};

TEST_F(QkvPostTest, SmallHeads) {
  for (const uint32_t hd : {16u, 32u, 128u, 256u, 512u}) {
    for (const uint32_t pairs : {hd / 2, hd / 8}) {
      const AttentionShape shape{4, 2, hd, 0};
      check_both({shape, pairs, 5});
      check_both({shape, pairs, 5, true});
      check_both({shape, pairs, 5, false, true, false});
      check_both({shape, pairs, 5, false, false, true});
      check_both({shape, pairs, 5, true, false, true});
    }
  }
}

// A q8_0 cache holds exactly what the host's rounding makes of the fp32 values. Those are not known to the last bit,
// but an fp16 cache has them within half a unit of fp16, which moves a level by no more than one.
TEST_F(QkvPostTest, SmallQuantisedCache) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 32, 0}, AttentionShape{4, 2, 96, 0},
                                      AttentionShape{8, 2, 256, 512}, AttentionShape{8, 1, 512, 0}}) {
    for (const bool v_from_k : {false, true}) {
      for (const bool only_kv : {false, true}) {
        SCOPED_TRACE(testing::Message() << "hd " << shape.hd << " v_from_k " << v_from_k << " only_kv " << only_kv);
        check_quantised({shape, shape.hd / 4, 50, v_from_k, false, only_kv});
      }
    }
  }
}

TEST_F(QkvPostTest, RealShapes) {
  for (const AttentionShape& shape : {AttentionShape{8, 2, 256, 512}, AttentionShape{8, 2, 512, 0},
                                      AttentionShape{16, 1, 512, 0}, AttentionShape{32, 16, 256, 1024}}) {
    check_both({shape, shape.hd == 256 ? 128u : 64u, 150, shape.hd == 512});
  }
}

}  // namespace
}  // namespace carat::cuda
