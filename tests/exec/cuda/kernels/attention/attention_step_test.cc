#include "exec/cuda/kernels/attention/decode/attention_step.h"

#include <string>

#include "exec/cuda/device/gpu_fixture.h"

namespace carat::cuda {
namespace {

struct StepCase {
  AttentionShape shape;
  std::vector<uint32_t> positions;  // one row each
  uint32_t cells;
  uint32_t splits;
  bool v_from_k = false, only_q = false;
};

// One step of a layer: by the kernel that makes its own heads, and by qkv_post and attention_decode, which have tests
// of their own.
template <typename Projection>
class StepProblem {
 public:
  explicit StepProblem(const StepCase& c, const LaunchConfig& launch)
      : c_(c),
        how_(launch),
        rows_(static_cast<uint32_t>(c.positions.size())),
        pairs_(c.shape.hd / 4),
        projections_(size_t{rows_} * heads() * c.shape.hd, 2.0f, 1),
        q_norm_(c.shape.hd, 1.0f, 2),
        k_norm_(c.shape.hd, 1.0f, 3),
        cache_(size_t{rows_} * c.shape.Hkv * c.cells * c.shape.hd),
        positions_(upload(c.positions)) {
    std::vector<uint32_t> sequences(rows_);
    // Each of another, as the kernel demands: rows of one sequence would read what others write meanwhile.
    for (uint32_t r = 0; r < rows_; ++r) sequences[r] = rows_ - 1 - r;
    sequences_ = upload(sequences);
    std::vector<float2> table(size_t{rows_} * pairs_);
    for (size_t i = 0; i < table.size(); ++i) {
      const auto angle = static_cast<float>(i % 89) * 0.07f;
      table[i] = make_float2(std::cos(angle), std::sin(angle));
    }
    table_ = upload(table);
    // A prime number of different values: no two rows are the same.
    const std::vector<float> values = test::Random(4).normals(10007, 1.0f);
    std::vector<__half> halves;
    for (const float value : values) halves.push_back(__float2half_rn(value));
    initial_.resize(cache_);
    for (size_t i = 0; i < cache_; ++i) initial_[i] = halves[i % halves.size()];
    const uint64_t scratch = attention_decode_scratch(c.shape, rows_, c.splits);
    partial_ = DeviceArray<float>(scratch, "partial results");
    counters_ = zeros<uint32_t>(size_t{rows_} * c.shape.Hkv);
  }

  struct Result {
    std::vector<__half> k, v;
  };
  // `out` is what the results go to.
  Result run(bool fused, Projection* out) {
    const auto k = upload(initial_), v = upload(initial_);
    const DeviceArray<__half> q(size_t{rows_} * c_.shape.H * c_.shape.hd, "queries");
    QkvPost job;
    job.shape = c_.shape;
    job.v_from_k = c_.v_from_k;
    job.only_q = c_.only_q;
    job.q_norm = q_norm_.device.data();
    job.k_norm = k_norm_.device.data();
    job.table = table_.data();
    job.pairs = pairs_;
    job.positions = positions_.data();
    job.sequences = sequences_.data();
    job.kv = {.k = k.data(), .v = v.data(), .cells = c_.cells};
    poison(partial_);
    if (fused) {
      attention_step(job, projections_.device.data(), rows_, out, c_.splits, partial_.data(), counters_.data(), how_);
    } else {
      job.q = q.data();
      qkv_post(job, projections_.device.data(), rows_, how_);
      attention_decode(c_.shape, q.data(), job.kv, positions_.data(), sequences_.data(), rows_, out, c_.splits,
                       partial_.data(), counters_.data(), how_);
    }
    check(cudaStreamSynchronize(how_.stream), "attention step");
    return {download(k), download(v)};
  }
  size_t results() const { return size_t{rows_} * c_.shape.H * c_.shape.hd; }
  const std::vector<__half>& initial() const { return initial_; }

 private:
  uint32_t heads() const { return c_.shape.H + (c_.only_q ? 0 : (c_.v_from_k ? 1 : 2) * c_.shape.Hkv); }

  const StepCase& c_;
  LaunchConfig how_;
  uint32_t rows_, pairs_;
  RandomValues<Projection> projections_;
  RandomValues<float> q_norm_, k_norm_;
  size_t cache_;
  DeviceArray<uint32_t> positions_, sequences_;
  DeviceArray<float2> table_;
  std::vector<__half> initial_;
  DeviceArray<float> partial_;
  DeviceArray<uint32_t> counters_;
};

std::vector<double> doubles(const std::vector<__half>& values) {
  std::vector<double> all;
  for (const __half value : values) all.push_back(double{__half2float(value)});
  return all;
}

class AttentionStepTest : public GpuTest {
 protected:
  // A query, key or value may be rounded to the neighbouring fp16 number: its norm was summed in another order.
  static constexpr double kTolerance = 1e-3;

  template <typename Projection>
  void compare(const StepCase& c) {
    StepProblem<Projection> problem(c, how_);
    const auto out = poisoned<Projection>(problem.results()), wanted_out = poisoned<Projection>(problem.results());
    const auto wanted = problem.run(false, wanted_out.data());
    const auto found = problem.run(true, out.data());
    const auto expected = to_floats(download(wanted_out));
    const bool rounded = std::is_same_v<Projection, __nv_bfloat16>;
    EXPECT_LT(difference(download(out), {expected.begin(), expected.end()}).relative, rounded ? 4e-3 : kTolerance);
    EXPECT_LT(difference(found.k, doubles(wanted.k)).largest, 0.02) << "keys";
    EXPECT_LT(difference(found.v, doubles(wanted.v)).largest, 0.02) << "values";
    if (c.only_q) {
      EXPECT_EQ(std::memcmp(found.k.data(), problem.initial().data(), found.k.size() * 2), 0)
          << "the cache was written";
    }
  }
  void check_case(const StepCase& c) {
    SCOPED_TRACE("hd " + std::to_string(c.shape.hd) + " H " + std::to_string(c.shape.H) + " splits " +
                 std::to_string(c.splits));
    compare<float>(c);
    compare<__nv_bfloat16>(c);
  }
};

TEST_F(AttentionStepTest, SmallWindowsAndRings) {
  // Positions at the edges of tiles and of the ring of cells; one block and several.
  const std::vector<uint32_t> positions = {0, 1, 63, 64, 127, 128, 200};
  for (const uint32_t splits : {1u, 2u, 5u}) {
    check_case({{8, 2, 256, 100}, positions, 192, splits});
    check_case({{8, 2, 512, 0}, positions, 256, splits});
    if (HasFailure()) return;
  }
}

TEST_F(AttentionStepTest, SmallKindsOfLayers) {
  const std::vector<uint32_t> positions = {5, 70, 31, 300};
  check_case({{8, 2, 256, 0}, positions, 320, 3, false, true});
  check_case({{16, 1, 512, 0}, positions, 320, 2, true});
  check_case({{4, 4, 256, 64}, positions, 128, 1});
  check_case({{6, 2, 160, 64}, positions, 128, 2});  // narrower than the tile
  check_case({{3, 1, 400, 0}, positions, 320, 2});
}

TEST_F(AttentionStepTest, ManyRows) {
  std::vector<uint32_t> positions;
  for (uint32_t r = 0; r < 20; ++r) positions.push_back(512 + r * 7 % 128);
  check_case({{8, 2, 256, 512}, positions, 640, 1});
  check_case({{8, 2, 512, 0}, positions, 704, 2});
}

}  // namespace
}  // namespace carat::cuda
