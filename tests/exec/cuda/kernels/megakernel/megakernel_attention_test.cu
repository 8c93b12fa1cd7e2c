// Attention of the token kernel against double precision: queries, keys and values normalised and rotated on the way,
// shares of one to 132 blocks put together, the token's own key and value written to the cache.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/megakernel/megakernel_attention_run.cuh"

namespace carat::cuda {
namespace {

constexpr float kEps = 1e-6f;

struct Case {
  uint32_t H, Hkv, hd, window, position;
  uint32_t slots;   // of a sequence; positions beyond live in a ring
  uint32_t blocks;  // 0: every SM
  bool owns = true, v_from_k = false;
  uint32_t rotated = 0;  // pairs of dimensions; 0: all
  uint32_t layers = 1;
  MegakernelMemory ring = {.slot_bytes = 21760, .slots = 6};
};

std::string describe(const Case& c) {
  return std::to_string(c.H) + " heads on " + std::to_string(c.Hkv) + " of " + std::to_string(c.hd) + ", window " +
         std::to_string(c.window) + ", position " + std::to_string(c.position) + ", slots " + std::to_string(c.slots) +
         ", blocks " + std::to_string(c.blocks) + (c.owns ? "" : ", shared cache") + (c.v_from_k ? ", v from k" : "");
}

using Row = std::vector<double>;

double to_double(__half h) { return static_cast<double>(__half2float(h)); }
double round_half(double v) { return to_double(__float2half_rn(static_cast<float>(v))); }

class MegakernelAttentionTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && attribute(cudaDevAttrComputeCapabilityMajor) < 9) {
      GTEST_SKIP() << "skipped: no copy engine for the ring (compute capability 9.0)";
    }
  }

  static constexpr uint32_t kSequence = 1;  // of two: offsets of sequences matter

  // A head of the product as attention takes it, rounded to fp16.
  Row take(const Case& c, uint32_t index, const float* norm) const {
    const float* from = product_.data() + size_t{index} * c.hd;
    double squares = 0.0;
    for (uint32_t i = 0; i < c.hd; ++i) squares += static_cast<double>(from[i]) * from[i];
    const double factor = 1.0 / std::sqrt(squares / c.hd + kEps);
    Row out(c.hd);
    for (uint32_t i = 0; i < c.hd; ++i) out[i] = from[i] * factor * (norm == nullptr ? 1.0 : norm[i]);
    const uint32_t pairs = c.rotated == 0 ? c.hd / 2 : c.rotated;
    for (uint32_t j = 0; norm != nullptr && j < pairs; ++j) {
      const double l = out[j], h = out[j + c.hd / 2];
      out[j] = l * turns_[j].x - h * turns_[j].y;
      out[j + c.hd / 2] = l * turns_[j].y + h * turns_[j].x;
    }
    for (double& v : out) v = round_half(v);
    return out;
  }

  // Keys and values of all slots: small ones where the query sees them, ones that would show where it must not look.
  void fill_cache(const Case& c, test::Random& random) {
    const size_t count = size_t{2} * c.Hkv * c.slots * c.hd;
    k_.resize(count), v_.resize(count);
    const uint32_t begin = c.window != 0 && c.position >= c.window ? c.position - c.window + 1 : 0;
    const uint32_t last = c.owns ? c.position : c.position + 1;  // seen positions before this one are in the cache
    std::vector<bool> seen(c.slots, false);
    for (uint32_t p = begin; p < last; ++p) seen[p % c.slots] = true;
    // Normal numbers from a short table, in an order that does not repeat with the rows: there are many of them.
    const std::vector<float> normals = random.normals(4093);
    for (size_t i = 0; i < count; ++i) {
      const size_t row = i / c.hd;
      const bool good = row / c.slots / c.Hkv == kSequence && seen[row % c.slots];
      k_[i] = __float2half_rn(good ? normals[(i * 2654435761u >> 7) % normals.size()] : 20.0f);
      v_[i] = __float2half_rn(good ? normals[(i * 2246822519u >> 9) % normals.size()] : 500.0f);
    }
  }

  std::vector<double> reference(const Case& c) const {
    const uint32_t group = c.H / c.Hkv;
    const uint32_t begin = c.window != 0 && c.position >= c.window ? c.position - c.window + 1 : 0;
    std::vector<double> out(size_t{c.H} * c.hd);
    for (uint32_t h = 0; h < c.H; ++h) {
      const uint32_t kv = h / group;
      const Row q = take(c, h, q_norm_.data());
      const Row own_key = take(c, c.H + kv, k_norm_.data());
      const Row own_value = take(c, c.H + (c.v_from_k ? 0 : c.Hkv) + kv, nullptr);
      const auto at = [&](const std::vector<__half>& cache, const Row& own, uint32_t p, uint32_t i) {
        if (c.owns && p == c.position) return own[i];
        return to_double(cache[((size_t{kSequence} * c.Hkv + kv) * c.slots + p % c.slots) * c.hd + i]);
      };
      std::vector<double> scores;
      double largest = -1e300, sum = 0.0;
      for (uint32_t p = begin; p <= c.position; ++p) {
        double score = 0.0;
        for (uint32_t i = 0; i < c.hd; ++i) score += q[i] * at(k_, own_key, p, i);
        scores.push_back(score);
        largest = std::max(largest, score);
      }
      for (double& score : scores) sum += score = std::exp(score - largest);
      for (uint32_t p = begin; p <= c.position; ++p) {
        const double chance = scores[p - begin] / sum;
        for (uint32_t i = 0; i < c.hd; ++i) out[size_t{h} * c.hd + i] += chance * at(v_, own_value, p, i);
      }
    }
    return out;
  }

  void verify(const Case& c) {
    SCOPED_TRACE(describe(c));
    test::Random random(c.H * 7919 + c.position * 31 + c.hd + c.window);
    const uint32_t heads = c.H + 2 * c.Hkv;
    product_ = random.normals(size_t{heads} * c.hd, 2.0f);
    // Scores of deviation 3, and one dimension after the other a little different.
    q_norm_.clear(), k_norm_.clear(), turns_.clear();
    for (uint32_t i = 0; i < c.hd; ++i) {
      q_norm_.push_back(3.0f / std::sqrt(static_cast<float>(c.hd)) * random.uniform(0.7f, 1.3f));
      k_norm_.push_back(random.uniform(0.7f, 1.3f));
    }
    for (uint32_t j = 0; j < c.hd / 2; ++j) {
      const float angle = random.uniform(-3.0f, 3.0f);
      turns_.push_back(make_float2(std::cos(angle), std::sin(angle)));
    }
    fill_cache(c, random);
    const uint32_t blocks = c.blocks == 0 ? sm_count_ : c.blocks, splits = megakernel_splits(c.Hkv, blocks);
    const auto product = upload(product_);
    const auto q_norm = upload(q_norm_), k_norm = upload(k_norm_);
    const auto turns = upload(turns_);
    const auto k = upload(k_), v = upload(v_);
    const auto qkv = poisoned<TaggedWord>(size_t{heads} * c.hd);
    const auto partial = poisoned<TaggedQuad>(size_t{c.H} * splits * c.hd / 4);
    const auto stats = poisoned<Tagged>(size_t{c.H} * splits * 2);
    const auto combined = poisoned<TaggedWord>(size_t{c.H} * c.hd);
    const auto out = poisoned<float>(size_t{c.H} * c.hd);
    std::vector<MegakernelStage> layers;
    for (uint32_t l = 0; l < c.layers; ++l) {
      layers.push_back(MegakernelStage{});
      layers[l].kind = MegakernelKind::kAttention;
      MegakernelAttention& a = layers[l].attention = {};
      a.shape.H = c.H, a.shape.Hkv = c.Hkv, a.shape.hd = c.hd, a.shape.window = c.window;
      a.pairs = c.rotated == 0 ? c.hd / 2 : c.rotated;
      a.owns = c.owns, a.v_from_k = c.v_from_k;
      a.q_norm = q_norm.data(), a.k_norm = k_norm.data();
      a.kv.k = k.data(), a.kv.v = v.data(), a.kv.cells = c.slots;
      a.slot_shift = megakernel_cache_shift(c.ring.slot_bytes);
      a.qkv = qkv.data(), a.qkv_version = a.version = l + 1;
      a.lends = l % 2 == 0;
      a.most_splits = splits;
      a.partial = partial.data(), a.stats = stats.data(), a.out = combined.data();
    }
    const auto stages = upload(layers);
    MegakernelAttentionLayers run{};
    run.job.stages = stages.data(), run.job.stage_count = c.layers;
    run.job.eps = kEps;
    run.job.memory = c.ring;
    run.job.memory.region_bytes = (megakernel_attention_bytes() + 127) / 128 * 128;
    run.product = product.data(), run.turns = turns.data();
    run.position = c.position, run.sequence = kSequence;
    run.out = out.data();
    std::vector<float> first;
    for (uint32_t serial = 1; serial <= 2; ++serial) {
      run.serial = serial;
      run_megakernel_attention(run, blocks, stream_->get());
      synchronise();
      if (serial == 1) first = download(out);
    }
    const std::vector<float> found = download(out);
    EXPECT_TRUE(first == found) << "a second run differs";
    const std::vector<double> expected = reference(c);
    double difference = 0.0, size = 0.0, worst = 0.0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double d = std::abs(found[i] - expected[i]);
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
      difference += d * d, size += expected[i] * expected[i];
    }
    EXPECT_LT(std::sqrt(difference / size), 1.5e-3);
    EXPECT_LT(worst, 0.02);
    verify_cache(c, download(k), download(v));
  }

  // Nothing but the token's own key and value has changed.
  void verify_cache(const Case& c, std::vector<__half> k, std::vector<__half> v) const {
    for (uint32_t h = 0; c.owns && h < c.Hkv; ++h) {
      const size_t first = ((size_t{kSequence} * c.Hkv + h) * c.slots + c.position % c.slots) * c.hd;
      const Row key = take(c, c.H + h, k_norm_.data()), value = take(c, c.H + (c.v_from_k ? 0 : c.Hkv) + h, nullptr);
      for (uint32_t i = 0; i < c.hd; ++i) {
        ASSERT_NEAR(to_double(k[first + i]), key[i], 4e-3) << "key of KV head " << h << ", dimension " << i;
        ASSERT_NEAR(to_double(v[first + i]), value[i], 4e-3) << "value of KV head " << h << ", dimension " << i;
        k[first + i] = k_[first + i], v[first + i] = v_[first + i];
      }
    }
    EXPECT_EQ(std::memcmp(k.data(), k_.data(), k.size() * sizeof(__half)), 0) << "other keys changed";
    EXPECT_EQ(std::memcmp(v.data(), v_.data(), v.size() * sizeof(__half)), 0) << "other values changed";
  }

  std::vector<float> product_, q_norm_, k_norm_;
  std::vector<float2> turns_;
  std::vector<__half> k_, v_;
};

TEST_F(MegakernelAttentionTest, SmallOneTileAndItsEdges) {
  for (const uint32_t hd : {256u, 512u}) {
    for (const uint32_t position : {0u, 1u, 7u, 8u, 15u, 16u, 40u, 62u, 63u}) {
      verify({.H = 4, .Hkv = 2, .hd = hd, .window = 0, .position = position, .slots = 128, .blocks = 4});
    }
  }
}

TEST_F(MegakernelAttentionTest, TileEdgesInOneShareAndInMany) {
  for (const uint32_t hd : {256u, 512u}) {
    for (const uint32_t position : {64u, 65u, 127u, 128u, 191u, 192u, 200u, 320u}) {
      for (const uint32_t blocks : {2u, 4u, 7u, 0u}) {
        verify({.H = 8, .Hkv = 2, .hd = hd, .window = 0, .position = position, .slots = 384, .blocks = blocks});
      }
    }
  }
}

TEST_F(MegakernelAttentionTest, WindowsThatMoveAroundTheRing) {
  for (const uint32_t hd : {256u, 512u}) {
    for (const uint32_t position : {126u, 127u, 128u, 140u, 191u, 255u, 256u, 300u, 511u, 512u, 1000u}) {
      for (const uint32_t blocks : {2u, 0u}) {
        verify({.H = 4, .Hkv = 2, .hd = hd, .window = 128, .position = position, .slots = 256, .blocks = blocks});
      }
    }
  }
  verify({.H = 4, .Hkv = 2, .hd = 256, .window = 1, .position = 77, .slots = 128, .blocks = 0});
}

TEST_F(MegakernelAttentionTest, EveryNumberOfHeadsOnAKvHead) {
  for (const uint32_t hd : {256u, 512u}) {
    for (uint32_t group = 1; group <= kMegakernelMaxHeads; ++group) {
      for (const uint32_t blocks : {3u, 0u}) {
        verify({.H = 3 * group, .Hkv = 3, .hd = hd, .window = 0, .position = 170, .slots = 192, .blocks = blocks});
      }
    }
  }
}

TEST_F(MegakernelAttentionTest, SharedCachesValuesFromKeysAndPartialRotation) {
  for (const uint32_t hd : {256u, 512u}) {
    for (const uint32_t blocks : {1u, 0u}) {
      Case c{.H = 16, .Hkv = 1, .hd = hd, .window = 0, .position = 333, .slots = 384, .blocks = blocks};
      c.owns = false;
      verify(c);
      c.owns = true, c.v_from_k = true;
      verify(c);
      c.rotated = 64;
      verify(c);
    }
  }
}

// Shares of many tiles, which come through the ring: slots of 8 and 16 rows and as few of them as there may be, tile
// edges, windows, every number of heads.
TEST_F(MegakernelAttentionTest, LongSharesComeThroughTheRing) {
  for (const uint32_t slot_bytes : {8u * 1040, 14336u, 16u * 1040, 24576u}) {
    for (const uint32_t slots : {4u, 7u}) {
      for (const uint32_t position : {256u, 319u, 320u, 777u}) {
        Case c{.H = 8, .Hkv = 2, .hd = 512, .window = 0, .position = position, .slots = 832, .blocks = 2, .layers = 3};
        c.ring = {.slot_bytes = slot_bytes, .slots = slots};
        verify(c);
      }
    }
  }
  for (const uint32_t position : {500u, 511u, 512u, 600u, 1000u}) {
    verify({.H = 4, .Hkv = 1, .hd = 512, .window = 300, .position = position, .slots = 384, .blocks = 1, .layers = 2});
  }
  for (uint32_t group = 1; group <= kMegakernelMaxHeads; ++group) {
    verify({.H = group, .Hkv = 1, .hd = 512, .window = 0, .position = 700, .slots = 704, .blocks = 2});
  }
}

// Many layers in a row reuse every buffer; many shares need several rounds of the combination.
TEST_F(MegakernelAttentionTest, LayersInARowAndLongCaches) {
  verify({.H = 8, .Hkv = 2, .hd = 256, .window = 512, .position = 3000, .slots = 1088, .blocks = 0, .layers = 20});
  verify({.H = 8, .Hkv = 2, .hd = 512, .window = 0, .position = 9000, .slots = 9088, .blocks = 0, .layers = 20});
  verify({.H = 16, .Hkv = 1, .hd = 512, .window = 0, .position = 8999, .slots = 9088, .blocks = 0, .layers = 2});
  verify({.H = 8, .Hkv = 2, .hd = 512, .window = 0, .position = 8999, .slots = 9088, .blocks = 31, .layers = 2});
  verify({.H = 32, .Hkv = 16, .hd = 256, .window = 1024, .position = 2345, .slots = 1088, .blocks = 0, .layers = 2});
}

}  // namespace
}  // namespace carat::cuda
